"""The YAML of triplets: presets, recipes, data; impossible combinations are told with the fix."""

import itertools

import pytest

from roformer.cli import CONF, compose
from roformer.config.build import build, from_yaml, plain, run_id, to_yaml
from roformer.config.composing import Composer
from roformer.config.scm import ScmConfig
from roformer.errors import InputError

RECIPES = Composer("scm").options("recipe")
PRESETS = sorted(path.stem for path in (CONF / "preset").glob("*.yaml"))
START = {"paper": ["init_from=x"]}


def config(*overrides: str) -> ScmConfig:
    return build(ScmConfig, compose("scm", list(overrides)))


@pytest.mark.parametrize(("recipe", "preset"), itertools.product(RECIPES, PRESETS))
def test_every_recipe_composes_with_every_preset(recipe, preset):
    built = config(f"recipe={recipe}", f"preset={preset}", *START.get(recipe, []))
    assert built.recipe == recipe and preset.endswith(str(built.training.max_length))
    assert from_yaml(ScmConfig, to_yaml(built)) == built


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("bert_512", ("bert", "learned", "none", 512)),
        ("wobert_512", ("wobert", "learned", "jieba", 512)),
        ("roformer_512", ("roformer", "rotary", "jieba", 512)),
        ("roformer_1024", ("roformer", "rotary", "jieba", 1024)),
    ],
)
def test_presets_are_the_models_of_tables_3_and_5(preset, expected):
    built = config(f"preset={preset}")
    found = (built.model.name, built.model.position.kind, built.tokenizer.words)
    assert (*found, built.training.max_length) == expected


def test_presets_differ_in_model_level_and_length_alone():
    first, *others = (plain(config(f"preset={preset}")) for preset in PRESETS)
    for other in others:
        assert {k for k in first if first[k] != other[k]} <= {"model", "tokenizer", "training"}
        model = {k for k in first["model"] if first["model"][k] != other["model"][k]}
        assert model <= {"name", "position"}
        training = {k for k in first["training"] if first["training"][k] != other["training"][k]}
        assert training <= {"max_length"}


def test_the_paper_recipe_is_the_authors_script():
    built = config("recipe=paper", "init_from=x", "data=files", "data.path=x")
    training, optimizer = built.training, built.optimizer
    assert (training.loss, training.batch_size, training.max_length) == ("bce", 2, 1024)
    assert (optimizer.learning_rate, built.schedule.kind) == (6e-6, "constant")
    assert (built.pair.pooling, built.pair.head, built.pair.token_types) == (
        "mean",
        "none",
        "zeros",
    )
    assert built.data.split == "shipped" and training.epochs * 2 == 20
    assert (built.model.layers, built.model.hidden_size) == (12, 768)


def test_the_command_line_beats_preset_and_recipe():
    built = config("preset=wobert_512", "model/size=mini", "training.max_length=256", "seed=3")
    assert (built.model.size, built.training.max_length, built.seed) == ("mini", 256, 3)
    assert config("preset=roformer_512", "model/position=alibi").model.position.kind == "alibi"


def test_run_id_names_what_changes_the_result():
    base = run_id(config())
    assert base.startswith("roformer-rotary-mini-")
    for same in ("tracker=none", "runtime.micro_batch_size=2", "resume=true"):
        assert run_id(config(same)) == base, same
    for other in ("pair.pooling=cls", "training.loss=bce", "data.train_triplets=8"):
        assert run_id(config(other)) != base, other


MISTAKES = {
    "preset=wobert_1024": "choose one of wobert_512, ",
    "data=hub": "scm has no such option; choose one of builtin, files$",
    "data=files": "data.path has no value: give data.path=",
    "recipe=paper": "init_from has no value: give init_from=",
    "pair.pooling=max": "'mean' or 'cls'",
    "training.steps=3": "valid keys here: batch_size, epochs",
    "training.loss=mse": "'bce' or 'ranking'",
    "tokenizer.words=pkuseg": "'none' or 'jieba'",
    "model.token_types=1": "choose pair.token_types=zeros",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_a_mistake_is_told_in_one_line(override):
    with pytest.raises(InputError, match=MISTAKES[override]) as refusal:
        config(override)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("preset", ["bert_512", "wobert_512"])
def test_a_length_beyond_the_learned_table_is_refused(preset):
    message = r"training.max_length=513 is beyond the learned table of .*max_positions=512"
    with pytest.raises(InputError, match=message):
        config(f"preset={preset}", "training.max_length=513")
    assert config(f"preset={preset}", "training.max_length=513", "model.position.max_positions=513")
