"""Stages compose; Table 4 is Table 4; what cannot be is told with the number of the stage."""

import pytest

from roformer.cli import compose
from roformer.config.build import build, plain
from roformer.config.composing import Composer
from roformer.config.schema import PretrainConfig
from roformer.config.stages import StagesConfig
from roformer.errors import InputError
from roformer.pipelines.stages import plan, stages_of
from roformer.report.paper import read_paper
from tests.conftest import REPOSITORY

RECIPES = Composer("stages").options("recipe")
FILLED = {"paper_warmstart": ["init_from=x"]}
STAGE = "sequence_length:32,batch_size:8,steps:6"
RESTART = f"{{{STAGE},optimizer:restart,schedule:continue}}"


def config(*overrides):
    return build(StagesConfig, compose("stages", list(overrides)))


def stages(*given):
    return config("recipe=smoke", f"stages=[{','.join(given)}]")


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("model", ["roformer", "model/position=t5"])
def test_every_recipe_composes(recipe, model):
    model = model if "/" in model else f"model={model}"
    built = config(f"recipe={recipe}", model, *FILLED.get(recipe, []))
    assert len(plan(built)) == len(built.stages) == len(stages_of(built))
    assert all(type(stage) is PretrainConfig for stage in stages_of(built))


@pytest.mark.parametrize("data", ["chinese_builtin", "chinese_hub"])
def test_both_chinese_corpora_compose(data):
    assert config(f"data={data}").data.tokenizer.words == "jieba"


@pytest.mark.parametrize("recipe", ["paper", "paper_warmstart"])
def test_the_paper_recipes_are_table_4(recipe):
    """Lengths, batches and steps as experiments/paper.yaml has them from the paper."""
    table = read_paper(REPOSITORY / "experiments" / "paper.yaml")["experiments"]["table_4"]
    theirs = [
        tuple(int(model[key].replace(",", "")) for key in ("length", "batch", "steps"))
        for model in table["models"]
    ]
    filled = FILLED.get(recipe, [])
    built = config(f"recipe={recipe}", "data=chinese_hub", "runtime=default", *filled)
    ours = [(stage.sequence_length, stage.batch_size, stage.steps) for stage in built.stages]
    assert ours == theirs and len(ours) == 6
    assert sum(steps for *_, steps in ours) == 452_500


def test_the_literal_stages_are_the_authors_script():
    """Each from the weights before it: a warm-up of 5,000 steps, then constant 1e-5."""
    found = stages_of(config("recipe=paper_warmstart", "init_from=wobert"))
    assert found[0].init_from == "wobert" and not any(stage.keep_moments for stage in found)
    for stage in found:
        schedule = stage.schedule
        assert (schedule.kind, schedule.warmup_steps, schedule.first_update) == (
            "constant",
            5000,
            0,
        )
        assert (stage.optimizer.learning_rate, stage.optimizer.weight_decay) == (1e-5, 0.01)
    with pytest.raises(InputError, match="init_from has no value"):
        config("recipe=paper_warmstart")


def test_each_stage_is_its_own_pretraining_after_the_one_before():
    """Recipe, id, length and place in the one schedule; all else is shared."""
    one, two, three = stages_of(config("recipe=mini", "training.precision=fp32"))
    assert [stage.recipe for stage in (one, two, three)] == [f"stages_mini_{n}" for n in (1, 2, 3)]
    assert (one.init_from, one.keep_moments, two.keep_moments) == (None, False, True)
    assert two.init_from.startswith("roformer-rotary-stages_mini_1-")
    assert three.init_from.startswith("roformer-rotary-stages_mini_2-")
    places = [(s.schedule.first_update, s.schedule.total_steps) for s in (one, two, three)]
    assert places == [(0, 600), (300, 600), (500, 600)]
    differing = {key for key in plain(one) if plain(one)[key] != plain(three).get(key)}
    assert differing == {"recipe", "schedule", "training", "init_from", "keep_moments"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            [RESTART.replace("restart", "keep")],
            "stage 1: optimizer=keep, but nothing stands before",
        ),
        ([RESTART, RESTART.replace("32", "4")], "sequence_length: .*greater than or equal to 8"),
        ([f"{{{STAGE},schedule:continue}}"], "stages.0.optimizer has no value"),
        ([f"{{{STAGE},optimizer:restart}}"], "stages.0.schedule has no value"),
        ([RESTART.replace("continue", "go")], "stages.0.schedule"),
        (
            [RESTART.replace("}", ",learning_rate:1}")],
            "stage 1: learning_rate is the peak of a sch",
        ),
        (
            [RESTART, RESTART.replace("continue", "{kind:linear,warmup_steps:6}")],
            "stage 2: schedule.warmup_steps=6 leaves nothing of training.steps=6",
        ),
        ([], "at least 1 item"),
    ],
)
def test_a_stage_that_cannot_be_is_told_in_one_line(given, message):
    with pytest.raises(InputError, match=message) as refusal:
        stages(*given)
    assert "\n" not in str(refusal.value)


def test_a_stage_beyond_a_learned_table_is_refused():
    """At composition, before the stages in front of it are trained for days."""
    with pytest.raises(InputError, match=r"^stage 2: training.sequence_length=1536 is beyond the"):
        config("recipe=paper", "model=wobert")
    assert config("recipe=paper", "model=wobert", "model.position.max_positions=1536")
