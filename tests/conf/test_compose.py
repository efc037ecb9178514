"""The YAML of every pipeline composes into its config class, and a run's id names what it should."""

import itertools

import pytest
import yaml

from roformer.cli import CONF, compose
from roformer.config.build import build, free_keys, from_yaml, plain, run_id, to_yaml
from roformer.config.composing import Composer
from roformer.config.glue import FinetuneConfig
from roformer.config.runs import RUNS
from roformer.pipelines.glue import cells_of
from roformer.pipelines.registry import get, load, pipelines

FILLED = {
    ("pretrain", "paper_warmstart"): ["init_from=x"],
    ("stages", "paper_warmstart"): ["init_from=x"],
    ("glue", "paper"): ["init_from=x"],
    ("glue", "stable"): ["init_from=x"],
    ("scm", "paper"): ["init_from=x"],
    ("wmt", "multi30k"): ["data=files", "data.path=x"],
    ("wmt", "paper_enfr"): ["data=hub"],
}
"""The keys that a recipe leaves to the user."""
RECIPES = [(name, recipe) for name in pipelines() for recipe in Composer(name).options("recipe")]
SCALING = "model.position.scaling"
NTK = [f"{SCALING}.kind=ntk", f"{SCALING}.factor=4"]
YARN = [f"{SCALING}.kind=yarn", f"{SCALING}.factor=4", f"{SCALING}.trained_length=128"]


def config(*overrides: str, pipeline: str = "pretrain"):
    return build(load(get(pipeline).config), compose(pipeline, list(overrides)))


def differing(one, other):
    """Return the keys in which two configs, or sections of them, differ."""
    one, other = (part if isinstance(part, dict) else plain(part) for part in (one, other))
    return {key for key in one if one[key] != other[key]}


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@pytest.mark.parametrize(("pipeline", "recipe"), RECIPES)
def test_every_recipe_composes_with_every_model_and_position_and_reads_back(pipeline, recipe):
    given = [f"recipe={recipe}", *FILLED.get((pipeline, recipe), []), "model/attention=softmax"]
    choices = [f"model={name}" for name in options("model")]
    choices += [f"model/position={name}" for name in options("model/position")]
    for choice in choices:
        words = [*given, choice]
        table = choice in ("model=bert", "model=wobert", "model/position=learned")
        if table and pipeline != "glue":
            words.append("model.position.max_positions=1536")
        built = config(*words, pipeline=pipeline)
        chosen = {built.model.name, built.model.position.kind}
        assert built.recipe == recipe and choice.partition("=")[2] in chosen
        assert from_yaml(type(built), to_yaml(built)) == built


@pytest.mark.parametrize("pipeline", ["pretrain", "wmt"])
def test_every_size_composes_with_every_position(pipeline):
    sizes = Composer(pipeline).options("model/size")
    for size, position in itertools.product(sizes, options("model/position")):
        built = config(f"model/size={size}", f"model/position={position}", pipeline=pipeline)
        assert (built.model.position.kind, built.model.size) == (position, size)


@pytest.mark.parametrize("pipeline", pipelines())
def test_every_option_of_the_other_groups_composes(pipeline):
    composer = Composer(pipeline)
    others = {"data", "masking", "runtime", "tracker", "preset", "task"} & composer.groups().keys()
    for group in sorted(others):
        for option in composer.options(group):
            extra = ["data.path=x"] if (group, option) == ("data", "files") else []
            assert config(f"{group}={option}", *extra, pipeline=pipeline)


@pytest.mark.parametrize("task", options("task"))
def test_a_task_is_a_short_yaml(task):
    assert list(config(f"task={task}", pipeline="glue").task) == [task]
    assert len((CONF / "task" / f"{task}.yaml").read_text().splitlines()) <= 8


@pytest.mark.parametrize(("pipeline", "recipe"), [("pretrain", "paper"), ("scm", "mini")])
def test_the_command_line_beats_recipe_and_preset(pipeline, recipe):
    preset = ["preset=wobert_512"] if pipeline == "scm" else []
    given = ["model/size=tiny", "optimizer.learning_rate=3e-4", "model/position=alibi"]
    built = config(f"recipe={recipe}", *preset, *given, pipeline=pipeline)
    found = (built.model.layers, built.optimizer.learning_rate, built.model.position.kind)
    assert found == (2, 3e-4, "alibi")


def test_keys_with_a_default_need_no_plus():
    assert config("data=files", "data.path=x", "data.max_bad_rows=7").data.max_bad_rows == 7


def test_clm_reads_what_pre_training_reads():
    """Key for key, so that both find the same prepared data."""
    for given in (["data=builtin"], ["data=files", "data.path=x"], ["data=hub"]):
        ours = config(*given, "recipe=mini", pipeline="clm")
        assert plain(ours)["data"] == plain(config(*given, "recipe=mini"))["data"]


# --- run ids -------------------------------------------------------------------------------------

FREE = [
    *("runtime=gpu", "runtime.micro_batch_size=8", "runtime.gradient_checkpointing=true"),
    *("tracker=none", "tracker=tensorboard", "resume=true", "runtime.runs_dir=elsewhere"),
]
INTERVALS = [f"training.{name}_every=7" for name in ("log", "evaluate", "checkpoint")]
START = "init_from=runs/x"
STAGE = "schedule.total_steps=900"
CHANGES = {
    "pretrain": [
        *(["training.steps=599"], ["masking.whole_word=true"], ["data.valid_fraction=0.1"]),
        *(["model.norm=pre"], ["data.tokenizer.words=jieba"], [START], [STAGE]),
        *([START, "keep_moments=true"], [STAGE, "schedule.first_update=300"]),
        *(["training.first_epoch=1"], NTK, YARN, [*YARN, f"{SCALING}.factor=8"]),
    ],
    "wmt": [["search.beam=5"], ["training.checkpoint_every=7"]],
    "clm": [["training.longer=[2]"]],
    "scm": [["pair.pooling=cls"], ["training.loss=bce"], ["data.train_triplets=8"]],
    "glue": [["training.epochs=9"], ["init_from=scratch"], ["data.max_train_examples=7"]],
}


@pytest.mark.parametrize("pipeline", CHANGES)
def test_run_id_names_what_changes_the_result_and_nothing_else(pipeline):
    def first(*given):
        built = config(*given, pipeline=pipeline)
        return run_id(next(cells_of(built)) if pipeline == "glue" else built)

    base = first()
    same = FREE + (["jobs=3", "keep_weights=all"] if pipeline == "glue" else [])
    same += INTERVALS if pipeline in ("pretrain", "clm") else INTERVALS[:2] * (pipeline == "wmt")
    assert {first(word) for word in same} == {base}
    others = CHANGES[pipeline]
    assert len({base, *(first(*given) for given in others)}) == 1 + len(others)
    assert first("seed=3") == base.removesuffix("s0") + "s3"


def test_a_run_id_begins_with_model_position_and_recipe():
    assert run_id(config()).startswith("roformer-rotary-mini-")
    assert "-performer-" in run_id(config(pipeline="charlm"))
    defaults = ["data.tokenizer.words=none", "training.first_epoch=0", f"{SCALING}.kind=none"]
    assert run_id(config(*defaults)) == run_id(config())


@pytest.mark.parametrize("cls", RUNS.values())
def test_every_run_has_keys_that_change_no_id(cls):
    assert free_keys(cls) >= {("runtime",), ("tracker",), ("resume",)}
    assert not {("seed",), ("model",), ("data",), ("optimizer",)} & free_keys(cls)


def test_cells_of_a_grid_are_the_product_and_have_ids_of_their_own():
    given = ["optimizer.learning_rate=[1e-4,3e-4]", "seed=[0,1,2]"]
    cells = list(cells_of(config(*given, pipeline="glue")))
    ids = {run_id(cell) for cell in cells}
    assert len(ids) == len(cells) == 6 * 2 * 3
    one = ["task=mrpc", "optimizer.learning_rate=3e-4", "seed=2"]
    alone = next(cells_of(config(*one, pipeline="glue")))
    assert run_id(alone) in ids and run_id(alone).startswith("mrpc-")
    assert from_yaml(FinetuneConfig, to_yaml(alone)) == alone


def test_a_written_config_is_yaml_that_reads_back_equal():
    built = config(*YARN, "model/position=rotary", "data=hub")
    assert build(type(built), yaml.safe_load(to_yaml(built))) == built
