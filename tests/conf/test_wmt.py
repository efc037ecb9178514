"""Translation's YAML: recipes, sizes, data; impossible combinations are told with the fix."""

import itertools

import pytest

from roformer.cli import CONF, compose
from roformer.config.build import build, from_yaml, plain, run_id, to_yaml
from roformer.config.composing import Composer
from roformer.config.wmt import WmtConfig
from roformer.errors import InputError

RECIPES = Composer("wmt").options("recipe")
SIZES = ["tiny", "mini", "base", "big"]
POSITIONS = sorted(path.stem for path in (CONF / "model" / "position").glob("*.yaml"))
DATA = {
    "multi30k": ["data=files", "data.path=x"],
    "paper_enfr": ["data=hub"],
}


def config(*overrides: str) -> WmtConfig:
    return build(WmtConfig, compose("wmt", list(overrides)))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("model", ["roformer", "transformer"])
def test_every_recipe_composes_with_every_model(recipe, model):
    built = config(f"recipe={recipe}", f"model={model}", *DATA.get(recipe, []))
    assert (built.recipe, built.model.name) == (recipe, model)
    assert from_yaml(WmtConfig, to_yaml(built)) == built


@pytest.mark.parametrize(("position", "size"), itertools.product(POSITIONS, SIZES))
def test_every_position_composes_with_every_size(position, size):
    built = config(f"model/position={position}", f"model/size={size}")
    assert (built.model.position.kind, built.model.size) == (position, size)


@pytest.mark.parametrize("option", ["builtin", "files", "hub"])
def test_every_source_composes(option):
    assert config(f"data={option}", *(["data.path=x"] if option == "files" else []))


def test_the_baseline_differs_in_the_position_encoding_alone():
    ours, baseline = plain(config()), plain(config("model=transformer"))
    assert {key for key in ours if ours[key] != baseline[key]} == {"model"}
    differing = {key for key in ours["model"] if ours["model"][key] != baseline["model"][key]}
    assert differing == {"name", "position"}
    assert baseline["model"]["position"]["kind"] == "sinusoidal"


def test_the_paper_recipe_is_the_paper():
    """Section 4.1 and what it takes from Vaswani et al. 2017, section 5 and table 3."""
    built = config("recipe=paper", "data=hub")
    model, training, schedule = built.model, built.training, built.schedule
    sizes = (model.layers, model.hidden_size, model.heads, model.intermediate_size)
    assert sizes == (6, 512, 8, 2048) and model.decoder.layers == 6
    assert (model.norm, model.activation, model.hidden_dropout) == ("post", "relu", 0.1)
    assert (training.label_smoothing, training.average) == (0.1, 5)
    assert (training.tokens_per_update, training.steps) == (25_000, 100_000)
    assert built.optimizer.betas == (0.9, 0.98)
    assert (schedule.kind, schedule.warmup_steps) == ("inverse_sqrt", 4000)
    assert built.optimizer.learning_rate == 5e-4
    assert built.optimizer.learning_rate * schedule.initial_ratio == pytest.approx(1e-7)
    assert (built.search.beam, built.search.length_penalty, built.search.alpha) == (
        4,
        "fairseq",
        0.6,
    )
    assert built.data.tokenizer.merges == 40_000
    assert (built.data.path, built.data.name, built.data.test_lines) == ("wmt/wmt14", "de-en", 3003)


def test_the_english_french_recipe_is_the_base_model_of_shaw():
    """Shaw et al. 2018, section 4.1: the base model that has 38.2 and 38.7 BLEU on EN-FR."""
    built = config("recipe=paper_enfr", "data=hub", "model/position=shaw")
    model, training = built.model, built.training
    sizes = (model.layers, model.hidden_size, model.heads, model.intermediate_size)
    assert sizes == (6, 512, 8, 1024) and (model.hidden_dropout, model.position.clip) == (0.1, 16)
    assert (training.steps, training.average, training.tokens_per_update) == (100_000, 1, 25_000)
    assert (built.data.name, built.data.target_language) == ("fr-en", "fr")
    schedule = built.schedule
    assert (schedule.kind, schedule.warmup_steps, schedule.initial_ratio) == (
        "inverse_sqrt",
        4000,
        0.0,
    )
    assert built.optimizer.learning_rate == pytest.approx((512 * 4000) ** -0.5, rel=1e-6)
    assert (built.search.beam, built.search.length_penalty, built.search.alpha) == (4, "gnmt", 0.6)
    paper, french = (
        plain(config(f"recipe={name}", "data=hub")) for name in ("paper", "paper_enfr")
    )
    differing = {key for key in paper if paper[key] != french[key]}
    assert differing == {"recipe", "model", "data", "training", "optimizer", "schedule", "search"}


def test_ten_minutes_of_vaswani_are_the_checkpoints_of_base_and_big():
    """0.4 s a step in base, 1.0 s in big; the mean of 20 spans 12,000 steps of big."""
    base, big = (config(f"recipe={name}", "data=hub") for name in ("paper", "paper_big"))
    assert base.training.checkpoint_every * 0.4 == 600
    assert big.training.checkpoint_every * 1.0 == 600
    assert big.training.average * big.training.checkpoint_every == 12_000


def test_big_differs_from_base_where_it_should():
    paper = plain(config("recipe=paper", "data=hub"))
    big = plain(config("recipe=paper_big", "data=hub"))
    assert {k for k in paper if paper[k] != big[k]} == {"recipe", "model", "training"}
    assert (big["model"]["hidden_size"], big["model"]["heads"]) == (1024, 16)
    assert (big["model"]["hidden_dropout"], big["training"]["steps"]) == (0.3, 300_000)
    shaw = ["model=transformer", "model/position=shaw", "model.position.clip=8"]
    assert config("recipe=paper_big", "data=hub", *shaw).model.position.clip == 8
    comment = (
        (CONF / "pipelines" / "wmt" / "recipe" / "paper_big.yaml").read_text().replace("\n# ", " ")
    )
    assert f"add {' '.join(shaw)}." in comment


def test_where_and_how_fast_stay_out_of_the_run_id():
    assert run_id(config()) == run_id(
        config("runtime.micro_batch_size=7", "runtime.threads=1", "tracker=none", "resume=false")
    )
    assert run_id(config()) != run_id(config("search.beam=5"))


DYNAMIC = ["kind=dynamic_ntk", "factor=2", "trained_length=100"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["search.bem=1"], r"search\.bem: unknown key; valid keys here: beam, alpha"),
        (["training.average=500"], "average=500 checkpoints, one in 10 updates, are more than"),
        (
            ["model/position=learned", "data.filter.max_length=600"],
            r"max_length=600, with the end of the sentence, is beyond the learned table of model\.position",
        ),
        (["training.bucket_tokens=64"], "does not hold one pair of data.filter.max_length=100"),
        (
            ["training.tokens_per_update=4200", "data.filter.max_length=3000"],
            "tokens_per_update=4200 in buckets of at most 4096 does not hold one pair",
        ),
        (["model/position=t5", "model.position.max_distance=16"], "must be above half of"),
        (
            [f"model.position.scaling.{key}" for key in DYNAMIC],
            "dynamic_ntk rotates all keys anew as a text grows",
        ),
        (["model.hidden_size=250"], "hidden_size=250 is not divisible by heads=4"),
        (["schedule.warmup_steps=400"], r"warmup_steps=400 leaves nothing of training\.steps=400"),
        (["training.precision=fp16", "runtime.device=cpu"], "fp16 needs a GPU"),
        (["search.length_penalty=marian"], r"search\.length_penalty"),
        (["data=enwik8"], "wmt has no such option; choose one of builtin, files, hub"),
        (["data=hub", "data.revision=main"], r"data\.revision"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_impossible_combinations_are_one_line(overrides, message):
    with pytest.raises(InputError, match=message) as error:
        config(*overrides)
    assert "\n" not in str(error.value)
