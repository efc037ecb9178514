"""The YAML files compose into the schema; mistakes on the command line are told with the fix."""

import itertools

import pytest

from roformer.cli import CONF, compose
from roformer.config import schema
from roformer.config.build import build, free_keys, plain, run_id, to_yaml
from roformer.config.composing import Composer
from roformer.config.lm import CausalLMConfig, CharLMConfig
from roformer.config.runs import RUNS
from roformer.config.wmt import WmtConfig
from roformer.errors import InputError


def config(*overrides: str, name="pretrain", cls=schema.PretrainConfig):
    return build(cls, compose(name, list(overrides)))


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


RECIPES = Composer("pretrain").options("recipe")
FILLED = {"paper_warmstart": ["init_from=runs/x"]}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("model", options("model"))
def test_every_recipe_composes_with_every_model(recipe, model):
    built = config(f"recipe={recipe}", f"model={model}", *FILLED.get(recipe, []))
    assert (built.recipe, built.model.name) == (recipe, model)


@pytest.mark.parametrize(
    ("position", "size"),
    itertools.product(options("model/position"), options("model/size")),
)
def test_every_position_composes_with_every_size(position, size):
    built = config(f"model/position={position}", f"model/size={size}")
    assert (built.model.position.kind, built.model.size) == (position, size)


@pytest.mark.parametrize(
    ("group", "given"),
    [("data", "data.path=x"), ("masking", ""), ("runtime", ""), ("tracker", "")],
)
def test_every_option_of_the_other_groups_composes(group, given):
    for option in Composer("pretrain").options(group):
        extra = [given] if given and option == "files" else []
        assert config(f"{group}={option}", *extra)


def test_bert_differs_from_roformer_in_the_position_encoding_alone():
    ours, bert = plain(config()), plain(config("model=bert"))
    differing = {key for key in ours if ours[key] != bert[key]}
    assert differing == {"model"}
    assert {k for k in ours["model"] if ours["model"][k] != bert["model"][k]} == {
        "name",
        "position",
    }


def test_the_paper_recipe_is_the_paper():
    """Section 4.2: bert-base, batch 64, length 512, 100k steps, AdamW at 1e-5, 8:2."""
    built = config("recipe=paper", "data=hub")
    training, model = built.training, built.model
    assert (training.batch_size, training.sequence_length, training.steps) == (64, 512, 100_000)
    assert (model.layers, model.hidden_size, model.heads, model.intermediate_size) == (
        12,
        768,
        12,
        3072,
    )
    assert built.optimizer.learning_rate == 1e-5
    assert built.data.valid_fraction == 0.2
    assert built.data.sources[0].path == "wikimedia/wikipedia"


def test_the_warm_start_recipe_is_the_authors_script():
    """Batch 64 with 4 accumulated; lr_schedule={20000: 1} counts micro-batches, four of them a step."""
    built = config("recipe=paper_warmstart", "init_from=x")
    assert built.training.batch_size == 64 * 4
    schedule = built.schedule
    assert (schedule.kind, schedule.warmup_steps, schedule.initial_ratio) == (
        "constant",
        20_000 // 4,
        0.0,
    )
    optimizer = built.optimizer
    assert (optimizer.learning_rate, optimizer.weight_decay) == (1e-5, 0.01)


def test_paper_tuned_differs_in_optimisation_alone():
    paper, tuned = plain(config("recipe=paper")), plain(config("recipe=paper_tuned"))
    assert {k for k in paper if paper[k] != tuned[k]} == {"recipe", "optimizer", "schedule"}


def test_the_command_line_beats_the_recipe():
    built = config("recipe=paper", "model/size=tiny", "optimizer.learning_rate=3e-4")
    assert (built.model.layers, built.optimizer.learning_rate) == (2, 3e-4)


def test_keys_with_a_default_need_no_plus():
    assert config("data=files", "data.path=x", "data.max_bad_rows=7").data.max_bad_rows == 7


def test_run_id_names_what_changes_the_result():
    base = run_id(config())
    assert base.startswith("roformer-rotary-mini-") and base.endswith("-s0")
    for same in (
        "runtime=gpu",
        "runtime.micro_batch_size=8",
        "runtime.gradient_checkpointing=true",
        "tracker=none",
        "resume=true",
        "runtime.runs_dir=elsewhere",
        "training.log_every=7",
        "training.evaluate_every=7",
        "training.checkpoint_every=7",
    ):
        assert run_id(config(same)) == base, same
    for other in (
        "training.steps=7",
        "masking.whole_word=true",
        "data.valid_fraction=0.1",
        "model.norm=pre",
    ):
        assert run_id(config(other)) != base, other
    assert run_id(config("seed=3")) == base.removesuffix("s0") + "s3"


@pytest.mark.parametrize(
    ("pipeline", "cls"),
    [("charlm", CharLMConfig), ("clm", CausalLMConfig), ("wmt", WmtConfig)],
)
def test_an_interval_is_part_of_the_run_id_where_it_changes_the_result(pipeline, cls):
    """Which checkpoints there are decides what a translation model is the mean of."""

    def changed(key):
        ours = [config(*given, name=pipeline, cls=cls) for given in ([], [f"training.{key}=7"])]
        return run_id(ours[0]) != run_id(ours[1])

    intervals = ("log_every", "evaluate_every", "checkpoint_every")
    assert list(map(changed, intervals)) == [False, False, pipeline == "wmt"]


@pytest.mark.parametrize("cls", RUNS.values())
def test_every_run_can_be_told_where_and_how_it_is_made_without_another_id(cls):
    assert free_keys(cls) >= {("runtime",), ("tracker",), ("resume",)}
    assert not {("seed",), ("model",), ("data",), ("optimizer",)} & free_keys(cls)


@pytest.mark.parametrize("given", [["model/position=t5", "data=hub"], [], "scaled"])
def test_a_written_config_reads_back_equal(given):
    from omegaconf import OmegaConf

    built = config(*(YARN if given == "scaled" else given))
    assert build(schema.PretrainConfig, OmegaConf.create(to_yaml(built))) == built


def test_scaling_is_part_of_the_run_id():
    assert run_id(config("model.position.scaling.kind=none")) == run_id(config())
    assert config(*YARN).model.position.scaling.trained_length == 128
    ids = {run_id(config(*given)) for given in ([], NTK, YARN, [*YARN, f"{SCALING}.factor=8"])}
    assert len(ids) == 4


def test_keys_of_stages_and_words_are_part_of_the_run_id():
    start = "init_from=runs/x"
    others = [
        [],
        ["data.tokenizer.words=jieba"],
        [start],
        [start, "keep_moments=true"],
        ["schedule.total_steps=900"],
        ["schedule.total_steps=900", "schedule.first_update=300"],
        ["training.first_epoch=1"],
    ]
    assert len({run_id(config(*given)) for given in others}) == len(others)
    assert run_id(config("data.tokenizer.words=none", "training.first_epoch=0")) == run_id(config())


def test_wobert_is_bert_and_the_words_are_the_data_s():
    ours, bert = (plain(config(f"model={name}"))["model"] for name in ("wobert", "bert"))
    assert {key for key in ours if ours[key] != bert[key]} == {"name"}
    for data in ("chinese_builtin", "chinese_hub"):
        assert config(f"data={data}").data.tokenizer.words == "jieba"
    chinese, english = (config(f"data={data}").data.sources[0] for data in ("chinese_hub", "hub"))
    assert (chinese.path, chinese.revision) == (english.path, english.revision)
    assert (chinese.name, english.name) == ("20231101.zh", "20231101.en")


MISTAKES = {
    "model.position.bse=1": "model.position.bse: unknown key; valid keys here: base, fraction",
    "modle=bert": "modle: unknown key; valid keys here: model, data,",
    "model/position=rop": "choose one of alibi, learned, none, rotary",
    "model=gpt": "choose one of bert, roformer",
    "recipe=nano": "choose one of mini, paper, paper_tuned, paper_warmstart, small, smoke$",
    "data=files": "data.path has no value: give data.path=",
    "recipe=paper_warmstart": "init_from has no value",
    "training.steps=many": "training.steps: .*valid integer.*not 'many'",
    "training.steps=0": "training.steps: .*greater than 0",
    "model.heads=3": "hidden_size=256 is not divisible by heads=3",
    "model.position.scaling.kind=longrope": "scaling: .*'none', 'linear', 'ntk', 'dynamic_ntk', 'yarn'",
    "model.position.scaling.kind=linear": "^model.position.scaling.factor has no value: give model",
    "model.position.scaling.factor=4": "scaling.factor: unknown key; valid keys here: kind$",
    "model.position.layout=neox": "'interleaved' or 'half', not 'neox'",
    "model.position.fraction=0.33": "is 21 dimensions",
    "resume=maybe": "^resume: .*; or ",
    "model.position=rotary": "write model/position=rotary, one of rotary, alibi",
    "model.size=base": "write model/size=base, one of base, ",
    "model.name=../x": "model.name: String should match pattern",
    "seed=99999999999999999999": "seed: ",
    "masking.mask=1.0": "add up to more than 1",
    "schedule.warmup_steps=9": "not both",
    "training.sequence_length=4": "greater than or equal to 8",
    "data.tokenizer.vocabsize=9": "valid keys here: vocab_size, lowercase, revision, source, words",
    "data.tokenizer.words=hmm": "data.tokenizer.words: .*'none' or 'jieba', not 'hmm'",
    "keep_moments=true": "keep_moments=true needs the run that has them: set init_from",
    "schedule.total_steps=500": "schedule.total_steps=500 ends before update 600",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_a_mistake_is_told_in_one_line(override):
    with pytest.raises(InputError, match=MISTAKES[override]) as refusal:
        config(override)
    assert "\n" not in str(refusal.value)


SCALING = "model.position.scaling"
NTK = [f"{SCALING}.kind=ntk", f"{SCALING}.factor=4"]
YARN = [f"{SCALING}.kind=yarn", f"{SCALING}.factor=4", f"{SCALING}.trained_length=128"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["model/position=learned", "training.sequence_length=1024"],
            "beyond the learned table of model.position.max_positions=512.*rotary, which has no table",
        ),
        (["training.precision=fp16", "runtime.device=cpu"], "needs a GPU"),
        (["data=files", "data.path="], "data.path: "),
        (["data=hub", "data.sources=[{path: glue, revision: null}]"], "should match pattern"),
        (["schedule.warmup_fraction=null", "schedule.warmup_steps=600"], "leaves nothing"),
        (["model/position=t5", "model.position.max_distance=8"], "above a quarter"),
        ([*YARN, "model.position.scaling.factor=0.5"], "factor: .*greater than or equal to 1"),
        ([*YARN, "model.position.scaling.factor=nan"], "factor: .*finite number"),
        (
            [*YARN, "model.position.scaling.beta_slow=40"],
            "beta_fast=32.0 must be above beta_slow=40",
        ),
        ([*YARN, "model.position.scaling.trained_length=6"], "too short for beta_slow=1.0: .* 6.3"),
        ([*YARN[:2]], "^model.position.scaling.trained_length has no value: give model.position"),
        ([*NTK, "model.position.fraction=0.03125"], "needs two of them"),
    ],
)
def test_combinations_that_cannot_be_are_refused(overrides, message):
    with pytest.raises(InputError, match=message):
        config(*overrides)
