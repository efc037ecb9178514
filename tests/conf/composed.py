"""Configs as a command line makes them, and how two of them differ."""

from functools import cache

from roformer.config.build import build, plain
from roformer.config.composing import Composer, compose
from roformer.registry import get, pipelines

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
RECIPES = [(name, recipe) for name in pipelines() for recipe in Composer(name).options("recipe")]


@cache
def config(words="", pipeline="pretrain"):
    """Return the config of a command line, its words with blanks between."""
    return build(get(pipeline).config(), compose(pipeline, words.split()))


def differing(one, other):
    """Return the keys in which two configs, or sections of them, differ."""
    one, other = plain(one), plain(other)
    return {key for key in one if one[key] != other[key]}
