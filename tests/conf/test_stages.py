"""Stages compose; Table 4 is Table 4."""

import pytest

from roformer.config.build import plain
from roformer.config.schema import PretrainConfig
from roformer.pipelines.stages import plan, stages_of
from roformer.report.runs import read_yaml_file
from tests.conf.composed import FILLED, RECIPES, config
from tests.conftest import REPOSITORY


def stages(words=""):
    return config(words, "stages")


@pytest.mark.parametrize("recipe", [name for pipeline, name in RECIPES if pipeline == "stages"])
def test_every_recipe_is_a_plan_of_pretrainings(recipe):
    words = f"recipe={recipe} {FILLED.get(('stages', recipe), '')}"
    built = stages(f"{words} model/position=t5 objective=mlm_sop")
    found = stages_of(built)
    assert len(plan(built)) == len(built.stages) == len(found)
    assert {(type(stage), stage.objective) for stage in found} == {(PretrainConfig, "mlm_sop")}


@pytest.mark.parametrize("words", ["recipe=paper", "recipe=paper_warmstart init_from=x"])
def test_the_paper_recipes_are_table_4(words):
    """Lengths, batches and steps as experiments/paper.yaml has them from the paper."""
    paper = read_yaml_file(REPOSITORY / "experiments" / "paper.yaml", what="the paper's numbers")
    table = paper["experiments"]["table_4"]["models"]
    keys = ("length", "batch", "steps")
    theirs = [tuple(int(model[key].replace(",", "")) for key in keys) for model in table]
    built = stages(f"{words} data=chinese_hub runtime=default")
    ours = [(stage.sequence_length, stage.batch_size, stage.steps) for stage in built.stages]
    assert ours == theirs and len(ours) == 6
    assert sum(steps for *_, steps in ours) == 452_500


def test_the_literal_stages_are_the_authors_script():
    """Each from the weights before it: a warm-up of 5,000 steps, then constant 1e-5, no clipping."""
    found = stages_of(stages("recipe=paper_warmstart init_from=wobert"))
    assert found[0].init_from == "wobert" and not any(stage.keep_moments for stage in found)
    for stage in found:
        schedule, optimizer = stage.schedule, stage.optimizer
        assert (schedule.kind, schedule.warmup_steps) == ("constant", 5000)
        assert (schedule.first_update, optimizer.learning_rate) == (0, 1e-5)
        assert (optimizer.weight_decay, optimizer.eps) == (0.01, 1e-6)
        assert optimizer.clip_norm is None


def test_each_stage_is_its_own_pretraining_after_the_one_before():
    """Recipe, id, length and place in the one schedule; all else is shared."""
    one, two, three = stages_of(stages("recipe=mini training.precision=fp32"))
    assert [stage.recipe for stage in (one, two, three)] == [f"stages_mini_{n}" for n in (1, 2, 3)]
    assert (one.init_from, one.keep_moments, two.keep_moments) == (None, False, True)
    assert two.init_from.startswith("roformer-rotary-stages_mini_1-")
    assert three.init_from.startswith("roformer-rotary-stages_mini_2-")
    places = [(s.schedule.first_update, s.schedule.total_steps) for s in (one, two, three)]
    assert places == [(0, 600), (300, 600), (500, 600)]
    differing = {key for key in plain(one) if plain(one)[key] != plain(three).get(key)}
    assert differing == {"recipe", "schedule", "training", "init_from", "keep_moments"}
