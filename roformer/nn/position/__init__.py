"""Position encodings: how a model knows the order of its tokens; the interface, and one file for each idea.

seam             the hooks that models and attention call, positions and distances, the registry
absolute         learned and sinusoidal vectors on the embeddings
rotary, xpos     rotated queries and keys
shaw, nezha      vectors of the distance on keys and values
transformer_xl   content and position terms with two global biases
deberta          content to position and position to content
tupe             positions correlated apart from the content
t5, alibi, kerple, fire   a bias of the distance alone
"""

from roformer.nn.position import (
    absolute,
    alibi,
    deberta,
    fire,
    kerple,
    nezha,
    rotary,
    shaw,
    t5,
    transformer_xl,
    tupe,
    xpos,
)
from roformer.nn.position.seam import (
    ENCODINGS,
    PositionEncoding,
    Positions,
    build_position,
    distances,
    encodes,
    pairs,
)

__all__ = [
    "ENCODINGS",
    "PositionEncoding",
    "Positions",
    "absolute",
    "alibi",
    "build_position",
    "deberta",
    "distances",
    "encodes",
    "fire",
    "kerple",
    "nezha",
    "pairs",
    "rotary",
    "shaw",
    "t5",
    "transformer_xl",
    "tupe",
    "xpos",
]
