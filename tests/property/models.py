"""Small models of every family with every position encoding, for the laws."""

import dataclasses

import torch

from roformer.config import position as encodings
from roformer.config.attention import EluAttention, PerformerAttention, SoftmaxAttention
from roformer.config.lm import CausalConfig
from roformer.config.schema import EncoderConfig
from roformer.config.wmt import Seq2SeqConfig
from roformer.models.causal import CausalLM
from roformer.models.encoder import MaskedLM
from roformer.models.seq2seq import Seq2Seq
from roformer.models.transformer import recompute_blocks

VOCABULARY = 40
POSITIONS = {
    "rotary": encodings.Rotary(),
    "rotary half": encodings.Rotary(layout="half"),
    "rotary partial": encodings.Rotary(fraction=0.5),
    "rotary values": encodings.Rotary(rotate_values=True),
    "learned": encodings.Learned(max_positions=160),
    "sinusoidal": encodings.Sinusoidal(),
    "shaw": encodings.Shaw(clip=3),
    "shaw keys only": encodings.Shaw(clip=3, values=False),
    "t5": encodings.T5Bias(buckets=8, max_distance=12),
    "alibi": encodings.Alibi(),
    "shaw per head": encodings.Shaw(clip=3, per_head=True),
    "transformer_xl": encodings.TransformerXL(),
    "tupe": encodings.Tupe(max_positions=500, buckets=8, max_distance=12),
    "deberta": encodings.Deberta(max_distance=6),
    "deberta buckets": encodings.Deberta(max_distance=16, buckets=8, mirrored=True),
    "nezha": encodings.Nezha(),
    "xpos": encodings.Xpos(scale_base=128.0),
    "fire": encodings.Fire(width=8),
    "kerple": encodings.Kerple(),
    "kerple power": encodings.Kerple(form="power"),
    "rotary+learned": encodings.Rotary(absolute="learned", absolute_positions=160),
    "none": encodings.NoPosition(),
}
LINEAR = {
    "performer": PerformerAttention(features=32, feature_eps=1e-6, chunk_length=7),
    "elu": EluAttention(chunk_length=7),
    "elu rotated before": EluAttention(chunk_length=7, rope_position="pre"),
}
"""Linear attention with rotary positions."""
NAMES = [*POSITIONS, *LINEAR]
SEE_BOTH_WAYS = [n for n in NAMES if n not in POSITIONS or POSITIONS[n].can("bidirectional")]
SOFTMAX = [name for name in SEE_BOTH_WAYS if name in POSITIONS]
FAMILIES = {
    "encoder": (MaskedLM, EncoderConfig, {"init_std": 0.3}),
    "causal": (CausalLM, CausalConfig, {}),
    "translation": (Seq2Seq, Seq2SeqConfig, {"decoder_layers": 3}),
}


def settings(name, **changes):
    """Return the arguments of a model's config class."""
    return {
        "name": "test",
        "size": "test",
        "layers": 2,
        "hidden_size": 32,
        "heads": 4,
        "intermediate_size": 48,
        "position": POSITIONS.get(name, encodings.Rotary()),
        "attention": LINEAR.get(name, SoftmaxAttention()),
        "attention_dropout": 0.0,
        **changes,
    }


def build(family, name, *, recompute=False, **changes):
    """Return a model in evaluation mode, drawn from seed 0."""
    model, config, defaults = FAMILIES[family]
    torch.manual_seed(0)
    if name == "tupe" and family != "encoder":  # no [CLS] to untie
        changes = {"position": dataclasses.replace(POSITIONS[name], untie_cls=False), **changes}
    chosen = config(**settings(name, **(defaults | changes)))
    made = model(chosen, VOCABULARY).eval()
    if recompute:
        recompute_blocks(made)
    return made


def tokens(rows=3, length=12):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(3, VOCABULARY, (rows, length), generator=generator)


def read(model, ids):
    """Return the logits of a model; a translation model reads `ids` on both sides."""
    return model(ids, ids) if isinstance(model, Seq2Seq) else model(ids)
