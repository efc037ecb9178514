"""Compare position encodings in one encoder: does order matter, do absolute positions matter?

    python examples/swap_position.py

All encoders have the same seed, so they have equal weights except in the encoding. The table shows how
much the output changes when the tokens are shuffled ("none": the encoding does not see order) and when
the whole text is moved to later positions ("none": it sees only distances).
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
            order = encoder(ids[:, shuffled])[:, shuffled.argsort()]  # in the original order
            moved = encoder(ids, positions=torch.arange(32) + 64)
        print(f"{position.kind:<14} {distance(plain, order)}  {distance(plain, moved)}")


def build(position: encodings.PositionConfig) -> Encoder:
    """Return a small encoder with this encoding, with weights large enough for visible differences."""
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
    """Return the relative distance of two outputs, or "none" for rounding errors."""
    apart = float((ours - theirs).norm() / ours.norm())
    return f"{apart:8.3f}" if apart > 1e-5 else "    none"


if __name__ == "__main__":
    main()
