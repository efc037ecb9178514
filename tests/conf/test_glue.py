"""The grid's YAML: tasks, recipes, cells; mistakes are told with the fix."""

import pytest

from roformer.cli import CONF, compose
from roformer.config.build import build, from_yaml, plain, run_id, to_yaml
from roformer.config.composing import Composer
from roformer.config.glue import FinetuneConfig, GlueConfig
from roformer.errors import InputError
from roformer.pipelines.glue import cells_of

START = {"paper": ["init_from=x"], "stable": ["init_from=x"]}
RECIPES = Composer("glue").options("recipe")
TASKS = sorted(path.stem for path in (CONF / "task").glob("*.yaml"))


def grid(*overrides: str) -> GlueConfig:
    return build(GlueConfig, compose("glue", list(overrides)))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("model", ["roformer", "bert"])
def test_every_recipe_composes_with_every_model(recipe, model):
    built = grid(f"recipe={recipe}", f"model={model}", *START.get(recipe, []))
    assert (built.recipe, built.model.name) == (recipe, model)
    assert list(built.task) == ["mrpc", "sst2", "qnli", "stsb", "qqp", "mnli"]


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_a_short_yaml(task):
    assert list(grid(f"task={task}").task) == [task]
    lines = (CONF / "task" / f"{task}.yaml").read_text().splitlines()
    assert len(lines) <= 8


def test_the_paper_recipe_is_the_paper():
    """Section 4.3: 3 epochs, length 512, batch 32, lr 2, 3, 4, 5e-5."""
    built = grid("recipe=paper", "init_from=x")
    training = built.training
    assert (training.epochs, training.max_length, training.batch_size) == (3, 512, 32)
    assert built.optimizer.learning_rate == [2e-5, 3e-5, 4e-5, 5e-5]
    assert (built.model.layers, built.model.hidden_size) == (12, 768)
    assert len(built.seed) >= 5


def test_headlines_are_the_papers():
    """F1 for MRPC and QQP, Spearman for STS-B, accuracy for the rest; the other one is kept too."""
    metrics = {name: task.metrics for name, task in grid().task.items()}
    assert metrics == {
        "mrpc": ["f1", "accuracy"],
        "qqp": ["f1", "accuracy"],
        "stsb": ["spearman", "pearson"],
        "sst2": ["accuracy"],
        "qnli": ["accuracy"],
        "mnli": ["accuracy"],
    }


def test_stable_differs_in_epochs_alone():
    paper, stable = (plain(grid(f"recipe={name}", "init_from=x")) for name in ("paper", "stable"))
    assert {key for key in paper if paper[key] != stable[key]} == {"recipe", "training"}
    changed = {k for k, v in paper["training"].items() if stable["training"][k] != v}
    assert changed == {"small_task_epochs"} and stable["schedule"]["warmup_fraction"] == 0.1


def test_cells_are_the_product_and_have_ids_of_their_own():
    cells = list(cells_of(grid("optimizer.learning_rate=[1e-4,3e-4]", "seed=[0,1,2]")))
    assert len(cells) == 6 * 2 * 3
    ids = {run_id(cell) for cell in cells}
    assert len(ids) == len(cells)
    assert {i.partition("-")[0] for i in ids} == set(grid().task)
    alone = next(cells_of(grid("task=mrpc", "optimizer.learning_rate=3e-4", "seed=2")))
    assert run_id(alone) in ids  # one cell by itself is the cell of the grid


def test_what_must_not_change_the_result_stays_out_of_the_id():
    def first(*overrides):
        return run_id(next(cells_of(grid("task=mrpc", *overrides))))

    assert first("jobs=3", "keep_weights=all", "runtime.micro_batch_size=2") == first()
    for other in ("training.epochs=9", "init_from=scratch", "data.max_train_examples=7"):
        assert first(other) != first(), other


def test_a_written_cell_reads_back_equal():
    cell = next(cells_of(grid("recipe=paper", "init_from=x", "data=hub")))
    assert from_yaml(FinetuneConfig, to_yaml(cell)) == cell
    assert cell.data.path == "nyu-mll/glue" and len(cell.data.revision) == 40


MISTAKES = {
    "task=[mrpc,nope]": "choose one of cola, mnli, mrpc, qnli, qqp, rte, sst2, stsb",
    "task=nope": "choose one of cola, mnli, mrpc, qnli, qqp, rte, sst2, stsb",
    "data=chinese_hub": "glue has no such option; choose one of hub, builtin, files$",
    "data=files": "data.path has no value: give data.path=",
    "recipe=paper": "init_from has no value: give init_from=",
    "seed=[]": "seed: ",
    "optimizer.learning_rate=[3e-4,0]": "greater than 0",
    "training.epoch=3": "valid keys here: epochs, batch_size, head_dropout",
    "task.mrpc.metrics=[accurcy]": "'accuracy', 'f1'",
    "task.mrpc.metrics=[pearson]": "metrics pearson do not fit a classification",
    "task.mnli.metrics=[f1]": "f1 is that of the second of two labels",
    "task.stsb.labels=[a,b]": "one of the two",
    "task.mrpc.files.texts=[a]": "differ in number",
    "keep_weights=none": "'selected' or 'all'",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_a_mistake_is_told_in_one_line(override):
    with pytest.raises(InputError, match=MISTAKES[override]) as refusal:
        grid(override)
    assert "\n" not in str(refusal.value)
