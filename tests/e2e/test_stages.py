"""Pre-training in stages: what is handed on, what begins anew, and a kill between or within them."""

import shutil
from dataclasses import replace

import pytest
import torch

from roformer.config.build import from_yaml, run_id
from roformer.config.schema import PretrainConfig, ScheduleConfig
from roformer.errors import InputError
from roformer.pipelines.stages import stages_of, train_stages
from roformer.tasks.mlm import MaskedLMTask
from roformer.training.loop import Loop
from roformer.training.optim import learning_rate
from tests.conf.composed import built
from tests.e2e.conftest import COMMON, assert_same, forget_processes, results, weights

SMALL = [
    *(*COMMON, "data=files", "data.tokenizer.vocab_size=200", "data.max_documents=null"),
    *("model.hidden_dropout=0.1", "training.log_every=1", "training.evaluate_every=6"),
    *("training.checkpoint_every=4", "training.valid_sequences=16", "schedule.warmup_steps=4"),
    "runtime.keep_checkpoints=10",
]
FIRST = "{sequence_length:32,batch_size:8,steps:6,optimizer:restart,schedule:continue}"
KEPT = "{sequence_length:64,batch_size:4,steps:12,optimizer:keep,schedule:continue}"
FRESH = KEPT.replace("keep", "restart")
OWN = FRESH.replace("schedule:continue", "schedule:{kind:constant},learning_rate:1e-4")


@pytest.fixture
def arguments(corpus, tmp_path):
    return [*SMALL, *corpus, f"runtime.runs_dir={tmp_path / 'runs'}"]


def config(*overrides):
    return built("stages", overrides)


def run(arguments, *stages, more=()):
    """Run stages in this process; return their folders."""
    forget_processes()
    return train_stages(config(*arguments, f"stages=[{','.join(stages)}]", *more))


def rates(folder):
    return [row["train/learning_rate"] for row in results(folder)]


@pytest.fixture(scope="module")
def states():
    """Return (model, moments) before and after each stage of `kept`, in their order."""
    return []


@pytest.fixture(scope="module")
def kept(corpus, tmp_path_factory, states):
    """Return (command line, folders) of two stages, the second with the first one's moments."""
    where = f"runtime.runs_dir={tmp_path_factory.mktemp('kept') / 'runs'}"
    arguments, update = [*SMALL, *corpus, where], Loop._step

    def remember(loop):
        named = loop.task.model.named_parameters()
        moments = {
            f"{name}:{key}": value.clone()
            for name, parameter in named
            for key, value in loop.adamw.state.get(parameter, {}).items()
        }
        weights = {n: t.detach().clone() for n, t in loop.task.model.state_dict().items()}
        states.append((weights, moments))

    def watched(loop, batches):
        if loop.state.step == 0:
            remember(loop)
        update(loop, batches)
        if loop.state.step == loop.task.training.steps:
            remember(loop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_step", watched)
        return arguments, run(arguments, FIRST, KEPT)


def test_a_stage_begins_with_the_weights_and_moments_of_the_one_before(kept, states):
    """Bit for bit; AdamW's own count of steps continues too, so its bias correction does."""
    new, first, second, last = states
    assert new[1] == {}
    for found, expected in zip(second, first, strict=True):
        assert found.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[key]) for key, tensor in found.items())
    assert {float(t) for key, t in last[1].items() if key.endswith(":step")} == {18.0}


def test_one_schedule_goes_on_across_the_border(kept):
    """Every step has the rate of the one schedule over 18 steps; no second warm-up."""
    first, second = kept[1]
    whole = learning_rate(ScheduleConfig(kind="linear", warmup_steps=4, final_ratio=0.02), 3e-3, 18)
    assert rates(first) + rates(second) == [whole(step) for step in range(1, 19)]


def test_new_moments_and_a_schedule_of_its_own_give_other_runs(kept):
    """After the same first stage. If either setting were lost, the runs would be the same."""
    arguments, (first, second) = kept
    fresh, own = (run(arguments, FIRST, other)[1] for other in (FRESH, OWN))
    ours, theirs = weights(second), weights(fresh)
    assert not torch.equal(ours["encoder.tokens.weight"], theirs["encoder.tokens.weight"])
    assert set(rates(own)) == {1e-4}
    for folder in (first, fresh, own):
        read = from_yaml(PretrainConfig, (folder / "config.yaml").read_text())
        assert run_id(read) == folder.name


def test_a_stage_killed_before_its_first_checkpoint_is_bitwise_the_stage_never_stopped(
    arguments, kept, resumed
):
    """It takes the moments of the stage before once more. The first stage has 6 steps."""
    seldom = ["training.checkpoint_every=12"]
    killed = resumed(9, run, arguments, FIRST, KEPT, more=seldom)
    for ours, theirs in zip(killed, kept[1], strict=True):
        assert ours.name == theirs.name
        assert_same(ours, theirs)


def test_a_later_stage_sees_other_blocks_in_another_order_with_other_masks(arguments):
    """Same length, same text, same seed: the third stage must not repeat the first."""
    built = stages_of(config(*arguments, f"stages=[{FIRST},{KEPT},{FIRST}]"))
    assert [stage.training.first_epoch for stage in built] == [0, 1000, 2000]
    # The third stage starts from a run that was not made.
    first, third = (MaskedLMTask(replace(built[n], init_from=None)) for n in (0, 2))
    for task in (first, third):
        task.build_model()
    (one,), (other,) = (task.keys(1, 0, 1) for task in (first, third))
    assert first.samples(one) != third.samples(other)
    assert not torch.equal(first.batches[one]["predict"], third.batches[other]["predict"])
    for task in (first, third):  # what is measured stays the same
        assert torch.equal(task.validation[one]["input_ids"], first.validation[one]["input_ids"])


def test_ids_do_not_depend_on_where_runs_are(arguments):
    here, there = (
        [
            run_id(stage)
            for stage in stages_of(config(*arguments, *more, f"stages=[{FIRST},{KEPT}]"))
        ]
        for more in ([], ["runtime.runs_dir=elsewhere", "runtime.micro_batch_size=2"])
    )
    assert here == there


def test_finished_stages_are_skipped_and_keep_no_moments(kept, capsys):
    """A stage keeps its moments until the next one is done."""
    arguments, folders = kept
    assert run(arguments, FIRST, KEPT) == folders
    assert capsys.readouterr().out.count("already done") == 2
    for folder in folders:
        assert not list(folder.glob("checkpoints/*/optimizer.safetensors"))
    with pytest.raises(InputError, match=r"has no moments .* runtime.keep_optimizer=true"):
        run(arguments, KEPT, more=[f"init_from={folders[0]}"])


def test_a_stage_is_of_the_weights_it_began_with(arguments):
    """Neither a finished nor an unfinished one passes for one that begins with others."""
    first, second = run(arguments, FIRST, FRESH)
    shutil.rmtree(first / "checkpoints" / "step_00000006")  # init_from is then step 4
    refused = rf"{second} was started on other weights .*resume=false starts over"
    with pytest.raises(InputError, match=refused):
        run(arguments, FIRST, FRESH)
    (second / "summary.json").unlink()
    with pytest.raises(InputError, match=refused):
        run(arguments, FIRST, FRESH)
