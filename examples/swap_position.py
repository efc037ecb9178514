"""Compare what position encodings know: one encoder, each encoding and no encoding, two questions.

    python examples/swap_position.py

Each encoder has the same seed, so the same weights everywhere but in the encoding. Asked are: does the
output change when the words are shuffled (does it know order at all), and does it change when the
whole text is moved to later positions (or does it see distances only)?
"""

import torch

from roformer.config import position as encodings
from roformer.config.attention import SoftmaxAttention
from roformer.config.schema import EncoderConfig
from roformer.models.encoder import Encoder, draw_encoder

ENCODINGS = [
    encodings.Rotary(),
    encodings.Learned(),
    encodings.Sinusoidal(),
    encodings.Shaw(),
    encodings.T5Bias(),
    encodings.Alibi(),
    encodings.TransformerXL(),
    encodings.Tupe(),
    encodings.Deberta(),
    encodings.Nezha(),
    encodings.Fire(),
    encodings.Kerple(),
    encodings.NoPosition(),
]


def main() -> None:
    ids = torch.arange(5, 37)[None]  # 32 different tokens
    shuffled = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    print("encoding       shuffled  moved")
    for position in ENCODINGS:
        encoder = build(position)
        with torch.no_grad():
            plain = encoder(ids)
            order = encoder(ids[:, shuffled])[:, shuffled.argsort()]  # back in their places
            moved = encoder(ids, positions=torch.arange(32) + 64)
        print(f"{position.kind:<14} {distance(plain, order)}  {distance(plain, moved)}")


def build(position: encodings.PositionConfig) -> Encoder:
    """Return a small encoder with this encoding and weights large enough to tell."""
    torch.manual_seed(0)
    config = EncoderConfig(
        name="roformer",
        size="tiny",
        layers=2,
        hidden_size=128,
        heads=2,
        intermediate_size=512,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        init_std=0.2,
        position=position,
        attention=SoftmaxAttention(),
    )
    encoder = Encoder(config, vocab_size=64).eval()
    draw_encoder(encoder, encoder)
    return encoder


def distance(ours: torch.Tensor, theirs: torch.Tensor) -> str:
    """Return how far two outputs are apart, relative to their size; rounding counts as nothing."""
    apart = float((ours - theirs).norm() / ours.norm())
    return f"{apart:8.3f}" if apart > 1e-5 else "    none"


if __name__ == "__main__":
    main()
