"""The YAML of the language models: recipes, positions, data; impossible combinations are one line."""

import itertools

import pytest

from roformer.cli import compose
from roformer.config.build import build, from_yaml, plain, run_id, to_yaml
from roformer.config.composing import Composer
from roformer.config.lm import CausalLMConfig, CharLMConfig
from roformer.errors import InputError
from tests.conf.test_compose import options

KINDS = {"charlm": CharLMConfig, "clm": CausalLMConfig}
RECIPES = [
    (pipeline, recipe) for pipeline in KINDS for recipe in Composer(pipeline).options("recipe")
]
TABLE = {"paper": 1024, "base": 1024}
"""Recipes whose texts are longer than a learned table is at first."""


def config(pipeline: str, *overrides: str):
    return build(KINDS[pipeline], compose(pipeline, list(overrides)))


@pytest.mark.parametrize(
    ("given", "position"), itertools.product(RECIPES, options("model/position"))
)
def test_every_recipe_composes_with_every_position(given, position):
    pipeline, recipe = given
    overrides = [f"recipe={recipe}", f"model/position={position}", "model/attention=softmax"]
    if position == "learned" and recipe in TABLE:
        with pytest.raises(InputError, match="beyond the learned table of model"):
            config(pipeline, *overrides)
        overrides.append(f"model.position.max_positions={TABLE[recipe]}")
    built = config(pipeline, *overrides)
    assert (built.recipe, built.model.position.kind) == (recipe, position)
    assert built.model.norm == "pre"
    assert from_yaml(KINDS[pipeline], to_yaml(built)) == built


@pytest.mark.parametrize(("pipeline", "recipe"), RECIPES)
@pytest.mark.parametrize("model", ["roformer", "bert", "transformer"])
def test_every_recipe_composes_with_every_model(pipeline, recipe, model):
    table = [f"model.position.max_positions={TABLE[recipe]}"] if recipe in TABLE else []
    built = config(pipeline, f"recipe={recipe}", f"model={model}", *table * (model == "bert"))
    assert (built.recipe, built.model.name) == (recipe, model)


@pytest.mark.parametrize("option", ["builtin", "files", "enwik8"])
def test_every_source_of_bytes_composes(option):
    given = ["data.path=x"] if option == "files" else []
    assert config("charlm", f"data={option}", *given).data.kind == f"bytes_{option}"


@pytest.mark.parametrize("option", ["builtin", "files", "hub"])
def test_a_token_model_reads_what_pre_training_reads(option):
    """Key for key, so that both find the same prepared shards."""
    given = [f"data={option}", *(["data.path=x"] if option == "files" else [])]
    ours = plain(config("clm", *given, "recipe=mini"))["data"]
    from tests.conf.test_compose import config as of_pre_training

    assert ours == plain(of_pre_training(*given, "recipe=mini"))["data"]


def test_the_paper_recipe_is_the_paper():
    """Section 4.4: Performer, 12 layers, 768, 12 heads, learning rate 1e-4, batch 128, length 1024."""
    built = config("charlm", "recipe=paper", "data=enwik8")
    model, training = built.model, built.training
    assert (model.layers, model.hidden_size, model.heads) == (12, 768, 12)
    assert (training.batch_size, training.sequence_length) == (128, 1024)
    assert built.optimizer.learning_rate == 1e-4
    assert (built.data.valid_fraction, built.data.test_fraction) == (0.05, 0.05)
    assert built.data.max_bytes is None


def test_positions_alone_differ_between_arms():
    ours, theirs = (
        plain(config("clm", f"model/position={p}"))["model"] for p in ("rotary", "learned")
    )
    assert {key for key in ours if ours[key] != theirs[key]} == {"position"}


@pytest.mark.parametrize("pipeline", KINDS)
def test_where_and_how_fast_stay_out_of_the_run_id(pipeline):
    same = ("runtime.micro_batch_size=7", "runtime.threads=1", "tracker=none", "resume=false")
    assert run_id(config(pipeline)) == run_id(config(pipeline, *same))
    assert run_id(config(pipeline)) != run_id(config(pipeline, "training.longer=[2]"))


LEARNED = ["model/position=learned", "model/attention=softmax"]
DYNAMIC = ["kind=dynamic_ntk", "factor=2", "trained_length=100"]


@pytest.mark.parametrize(
    ("pipeline", "overrides", "message"),
    [
        ("clm", [*LEARNED, "training.sequence_length=513"], "beyond the learned table of model"),
        ("clm", ["training.longer=[2,3]"], r"longer=\[2, 3\]: each must divide the largest"),
        ("clm", ["training.longer=[1]"], "training.longer.*greater than or equal to 2"),
        ("clm", ["training.valid_sequences=3"], "do not hold one of 4 times the length"),
        ("clm", ["training.sequence_length=4"], "greater than or equal to 8"),
        (
            "clm",
            ["model/position=t5", "model.position.max_distance=16"],
            "must be above half of position.buckets=32, where the decoder's",
        ),
        (
            "clm",
            [f"model.position.scaling.{key}" for key in DYNAMIC],
            "dynamic_ntk rotates all keys anew as a text grows",
        ),
        ("clm", ["masking.probability=0.1"], "masking: unknown key; valid keys here: data, model"),
        ("clm", ["data=enwik8"], "clm has no such option; choose one of builtin, chinese_builtin"),
        ("charlm", ["data=hub"], "charlm has no such option; choose one of builtin, enwik8, files"),
        ("charlm", ["data=files"], "data.path has no value: give data.path="),
        ("charlm", ["data.valid_fraction=0.6", "data.test_fraction=0.4"], "leave nothing to train"),
        ("charlm", ["data=enwik8", "data.sha256=00"], "data.sha256: .*match pattern"),
        ("charlm", ["data=enwik8", "data.url=file:///etc"], "data.url: .*match pattern"),
        (
            "charlm",
            ["schedule.warmup_fraction=null", "schedule.warmup_steps=9999"],
            "leaves nothing",
        ),
        ("charlm", ["training.precision=fp16", "runtime.device=cpu"], "fp16 needs a GPU"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_impossible_combinations_are_one_line(pipeline, overrides, message):
    with pytest.raises(InputError, match=message) as error:
        config(pipeline, *overrides)
    assert "\n" not in str(error.value)


def test_there_is_a_recipe_of_every_size():
    assert {*RECIPES} >= {
        *((pipeline, size) for pipeline in KINDS for size in ("smoke", "mini")),
        ("charlm", "paper"),
    }
