"""The YAML of every pipeline composes into its config class, and a run's id names what it should."""

import pytest

from roformer.config.build import from_yaml, plain, run_id, to_yaml
from roformer.config.composing import CONF, Composer, compose
from roformer.config.glue import FinetuneConfig
from roformer.errors import InputError
from roformer.pipelines.glue import cells_of
from roformer.registry import pipelines
from tests.conf.composed import FILLED, RECIPES, built, composer, config

SCALING = "model.position.scaling"
YARN = f"{SCALING}.kind=yarn {SCALING}.factor=4 {SCALING}.trained_length=128"


@pytest.mark.parametrize(("pipeline", "recipe"), RECIPES)
def test_every_recipe_composes_and_reads_back(pipeline, recipe):
    built = config(f"recipe={recipe} {FILLED.get((pipeline, recipe), '')}", pipeline)
    assert built.recipe == recipe and from_yaml(type(built), to_yaml(built)) == built
    assert (
        f"\nrecipe: {recipe}\n"
        in (CONF / "pipelines" / pipeline / "recipe" / f"{recipe}.yaml").read_text()
    )


@pytest.mark.parametrize("pipeline", pipelines())
def test_a_pipeline_s_recipes_are_its_own_and_one_takes_minutes(pipeline):
    own = {path.stem for path in (CONF / "pipelines" / pipeline / "recipe").glob("*.yaml")}
    assert own == {*composer(pipeline).options("recipe")} and {"smoke", "mini"} <= own


@pytest.mark.parametrize(
    ("pipeline", "group"), [("wmt", "model"), ("wmt", "model/size"), ("pretrain", "model/position")]
)
def test_every_model_and_position_composes(pipeline, group):
    for option in composer(pipeline).options(group):
        model = config(f"{group}={option}", "clm" if option == "xpos" else pipeline).model
        kind = model.position.kind
        assert option in (model.name, kind, model.size, f"{kind}_base", f"{kind}_big")


def test_a_reference_that_cannot_be_resolved_is_one_line():
    """One to Hydra can be, but not yet while the config is composed."""
    for words in (["init_from=${nope}"], ["init_from=x", "runtime.runs_dir=${nope}"]):
        with pytest.raises(InputError, match="Interpolation key 'nope' not found"):
            compose("pretrain", words)
    Composer("pretrain").compose(["++runtime.runs_dir=${hydra:runtime.cwd}/runs"])


GROUPS = {
    "pretrain": ["data", "masking", "runtime", "tracker", "model", "model/size"],
    "scm": ["data", "preset"],
    "glue": ["data", "task"],
    "wmt": ["data"],
    "charlm": ["data"],
}


@pytest.mark.parametrize("pipeline", GROUPS)
def test_every_option_of_the_other_groups_composes(pipeline):
    options = {group: composer(pipeline).options(group) for group in GROUPS[pipeline]}
    for number in range(max(map(len, options.values()))):
        words = [f"{group}={some[number % len(some)]}" for group, some in options.items()]
        assert built(pipeline, [*words, *(["data.path=x"] if "data=files" in words else [])])


@pytest.mark.parametrize(("pipeline", "first"), [("pretrain", ""), ("scm", "preset=wobert_512")])
def test_the_command_line_beats_recipe_and_preset(pipeline, first):
    given = "model/size=tiny optimizer.learning_rate=3e-4 model/position=alibi"
    built = config(f"{first} {given}", pipeline)
    found = (built.model.layers, built.optimizer.learning_rate, built.model.position.kind)
    assert found == (2, 3e-4, "alibi")


def test_keys_with_a_default_need_no_plus():
    assert config("data=files data.path=x data.max_bad_rows=7").data.max_bad_rows == 7
    several = config("data=files data.path=[x,y/]")
    assert several.data.path == ["x", "y/"]
    assert run_id(config("data=files data.path=x")) != run_id(several)


def test_clm_reads_what_pre_training_reads():
    """Key for key, so that both find the same prepared data."""
    for data in ("builtin", "files data.path=x", "hub"):
        given = f"data={data} recipe=mini"
        assert plain(config(given, "clm"))["data"] == plain(config(given))["data"]


# --- run ids -------------------------------------------------------------------------------------

FREE = [
    *("runtime=gpu", "runtime.micro_batch_size=8", "runtime.gradient_checkpointing=true"),
    *("tracker=none", "tracker=tensorboard", "resume=true", "runtime.runs_dir=elsewhere"),
]
INTERVALS = [f"training.{name}_every=7" for name in ("log", "evaluate", "checkpoint")]
SAME = {
    "pretrain": [
        *(*FREE, *INTERVALS, "data.tokenizer.words=none", f"{SCALING}.kind=none"),
        *("objective=mlm", "training.keep_at=[5,600]"),
        *("model.position.absolute=none", "model.position.absolute_positions=512"),
    ],
    "wmt": INTERVALS[:2],
    "clm": INTERVALS,
    "scm": [],
    "glue": ["jobs=3", "keep_weights=all"],
}
START, STAGE = "init_from=runs/pretrain/x", "schedule.total_steps=900"
CHANGES = {
    "pretrain": [
        *("training.steps=599", "masking.whole_word=true", "data.valid_fraction=0.1"),
        *("objective=mlm_nsp", "objective=mlm_sop"),
        *("model.norm=pre", "data.tokenizer.words=jieba", START, STAGE, "training.first_epoch=1"),
        *(f"{START} keep_moments=true", f"{STAGE} schedule.first_update=300"),
        *("model.position.absolute=learned", "model.position.absolute=sinusoidal"),
        *("model/position=shaw", "model/position=shaw_base", "model/position=shaw_big"),
        *(f"{SCALING}.kind=ntk {SCALING}.factor=4", YARN, f"{YARN} {SCALING}.factor=8"),
    ],
    "wmt": ["search.beam=5", "training.checkpoint_every=5"],
    "clm": ["training.longer=[2]"],
    "scm": ["pair.pooling=cls", "training.loss=bce", "data.train_triplets=8"],
    "glue": ["training.epochs=9", "init_from=scratch", "data.max_train_examples=7"],
}


@pytest.mark.parametrize("pipeline", CHANGES)
def test_run_id_names_what_changes_the_result_and_nothing_else(pipeline):
    def first(words=""):
        built = config(words, pipeline)
        return run_id(next(cells_of(built)) if pipeline == "glue" else built)

    assert {first(word) for word in SAME[pipeline]} <= {first()}
    others = {first(words) for words in CHANGES[pipeline]} - {first()}
    assert len(others) == len(CHANGES[pipeline])
    assert first("seed=3") == first().removesuffix("s0") + "s3"


def test_absolute_positions_are_named_in_the_id():
    built = config("model.position.absolute=learned model.position.absolute_positions=600")
    assert run_id(built).startswith("roformer-rotary-learned-mini-")
    assert (built.model.position.name, built.model.position.longest) == ("rotary+learned", 600)


def test_cells_of_a_grid_are_the_product_and_have_ids_of_their_own():
    cells = list(cells_of(config("optimizer.learning_rate=[1e-4,3e-4] seed=[0,1,2]", "glue")))
    ids = {run_id(cell) for cell in cells}
    assert len(ids) == len(cells) == 6 * 2 * 3
    one = config("task=mrpc optimizer.learning_rate=3e-4 seed=2", "glue")
    (alone,) = cells_of(one)
    assert run_id(alone) in ids and run_id(alone).startswith("mrpc-")
    assert from_yaml(FinetuneConfig, to_yaml(alone)) == alone


def test_a_tasks_file_sets_the_task_of_its_name(tmp_path):
    """Else a copy of a file with its first line would train under the name of the original."""
    (tmp_path / "task").mkdir()
    copy = tmp_path / "task" / "v.yaml"
    copy.write_text((CONF / "pipelines/glue/task/rte.yaml").read_text())
    own = Composer("glue", config_dir=str(tmp_path))
    with pytest.raises(InputError, match=r"v.yaml sets task.rte: .* must be # @package task.v$"):
        own.compose(["task=v"])
    copy.write_text(copy.read_text().replace("task.rte", "task.v"))
    assert [*own.compose(["task=[v,mrpc]"]).task] == ["v", "mrpc"]
