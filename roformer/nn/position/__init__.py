"""Position encodings: how a model knows the order of its tokens; one file per idea.

base             the hooks that models and attention call; positions and distances
absolute         learned and sinusoidal vectors added to the embeddings
rotary, xpos     rotated queries and keys
shaw, nezha      one vector per distance on keys and values
transformer_xl   content and position terms with two global biases
deberta          content to position and position to content
tupe             positions correlated separately from the content
t5, alibi, kerple, fire   a bias that depends only on the distance
"""

from importlib import import_module
from pkgutil import iter_modules

from roformer.nn.position.base import (
    ENCODINGS,
    PositionEncoding,
    Positions,
    build_position,
    distances,
    encodes,
    pairs,
)

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")  # each registers its encodings

__all__ = [
    "ENCODINGS",
    "PositionEncoding",
    "Positions",
    "build_position",
    "distances",
    "encodes",
    "pairs",
]
