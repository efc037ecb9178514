"""Configs as a command line makes them, and how two of them differ."""

from functools import cache

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from roformer.config.build import plain
from roformer.config.composing import Composer, compose
from roformer.registry import pipelines

FILLED = {
    **dict.fromkeys(
        [("pretrain", "paper_warmstart"), ("stages", "paper_warmstart"), ("pretrain", "warmstart")],
        "init_from=x",
    ),
    **dict.fromkeys([("glue", "paper"), ("glue", "stable"), ("scm", "paper")], "init_from=x"),
    ("wmt", "multi30k"): "data.path=x",
    ("scm", "real"): "data.path=x",
}
"""The keys that a recipe leaves to the user."""
composer = cache(Composer)
RECIPES = [(name, recipe) for name in pipelines() for recipe in composer(name).options("recipe")]


@cache
def config(words="", pipeline="pretrain"):
    """Return the config of a command line, its words with blanks between."""
    return built(pipeline, words.split())


def built(pipeline, words):
    """Return the config of a command line; options are composed once, whatever keys follow them."""
    loader = composer(pipeline)
    opened = [loader.open_key(word) for word in words]
    keys = [word for word in opened if word.startswith("++")]
    groups = tuple(word for word in opened if word not in keys)
    try:
        parsed = OverridesParser.create().parse_overrides(keys)
        composed = chosen(pipeline, groups).copy()
        Composer._apply_overrides_to_config(parsed, composed)
    except HydraException:
        return compose(pipeline, words)  # raises the error in our words
    adopts = loader.entry.adopts_weights and composed.get("init_from")
    return compose(pipeline, words) if adopts else loader.build(composed)


@cache
def chosen(pipeline, groups):
    return composer(pipeline).compose(groups)


def differing(one, other):
    """Return the keys in which two configs, or sections of them, differ."""
    one, other = plain(one), plain(other)
    return {key for key in one if one[key] != other[key]}
