"""The promises that every pipeline makes of a run: resumed, cut, finished, not learnt."""

import json
from functools import cache

import pytest
from accelerate import Accelerator

from roformer.errors import InputError
from roformer.training.loop import Loop
from tests.e2e import lm_runs, test_convert, test_glue, test_scm, wmt_runs
from tests.e2e.conftest import SMALL, assert_close, assert_same, run_in_process
from tests.other_device import OTHER, another_device

SMALL_RUNS = {
    "pretrain": [*SMALL, "training.steps=12"],
    "convert": [*test_convert.SMALL, "training.steps=12"],
    "glue": [*test_glue.SMALL, "task=mrpc"],
    "wmt": [*wmt_runs.SMALL, "training.steps=12", "training.average=2"],
    "charlm": [*lm_runs.SMALL["charlm"], "training.steps=12"],
    "clm": [*lm_runs.SMALL["clm"], "training.steps=12"],
    "scm": test_scm.SMALL,
}
DETAILED = ["model.hidden_dropout=0.1", "runtime.keep_optimizer=true"]
LOGGED = {name: ["training.log_every=1"] for name in SMALL_RUNS if name not in ("glue", "scm")}
ABOVE_ROUNDING = ["optimizer.eps=1e-6", "optimizer.learning_rate=1e-4"]
"""AdamW would blow rounding up to whole steps where a gradient is 0."""
SHORT = [f"training.{key}" for key in ("steps=4", "evaluate_every=4", "checkpoint_every=2")]
SHORTER = {
    "glue": ["data.train_examples=32", "data.validation_examples=16", "training.epochs=1"],
    "scm": ["training.epochs=1"],
    "wmt": [*SHORT, "schedule.warmup_steps=2"],
}
"""In place of SHORT."""
WRITTEN = ("positions.json", "bleu_statistics.json", "predictions/*.tsv", "translations/*.txt")
every = pytest.mark.parametrize("pipeline", SMALL_RUNS)


@pytest.fixture(scope="module")
def data(corpus, tmp_path_factory):
    """Return the overrides of each pipeline that name its data, prepared once."""
    folder = tmp_path_factory.mktemp("pairs")
    wmt_runs.write_parallel_text(folder / "text")
    cache_dir = f"runtime.cache_dir={folder / 'cache'}"
    found = dict.fromkeys(SMALL_RUNS, corpus)
    found["convert"] = [*corpus, f"init_from={test_convert.original(folder / 'original')}"]
    found |= {"wmt": [f"data.path={folder / 'text'}", cache_dir]}
    return found | {"glue": [cache_dir], "scm": [cache_dir]}


def command_line(pipeline, data, folder):
    """Return the command line of a pipeline's small run into a folder."""
    return [*SMALL_RUNS[pipeline], *data[pipeline], f"runtime.runs_dir={folder / 'runs'}"]


@pytest.fixture
def small(data, tmp_path):
    """Return a function that gives the `command_line` of a pipeline's run into `tmp_path`."""
    return lambda pipeline: command_line(pipeline, data, tmp_path)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """Return a function that gives (command line, summary, folder) of a run never stopped."""

    @cache
    def run(pipeline):
        arguments = command_line(pipeline, data, tmp_path_factory.mktemp(pipeline))
        arguments += [*DETAILED, *LOGGED.get(pipeline, [])]
        return arguments, *run_in_process(pipeline, arguments)

    return run


@every
def test_a_run_killed_and_started_again_is_bitwise_the_run_never_stopped(pipeline, whole, resumed):
    """Dropout on, so that the generators' state counts."""
    arguments, expected, calm = whole(pipeline)
    step = expected["steps"] - 3
    summary, folder = resumed(step, run_in_process, pipeline, arguments, runs="killed")
    assert_same(folder, calm)
    assert summary["metrics"] == expected["metrics"] and summary["best"] == expected["best"]
    for file in (file for pattern in WRITTEN for file in calm.glob(pattern)):
        assert (folder / file.relative_to(calm)).read_bytes() == file.read_bytes()


@pytest.fixture(scope="module")
def short(data, tmp_path_factory):
    """Return a function that gives (command line, summary, folder) of a run too short to learn."""

    @cache
    def run(pipeline):
        arguments = command_line(pipeline, data, tmp_path_factory.mktemp(pipeline))
        arguments += [*ABOVE_ROUNDING, *SHORTER.get(pipeline, SHORT)]
        return arguments, *run_in_process(pipeline, arguments)

    return run


@every
def test_micro_batches_change_nothing(pipeline, short):
    arguments, _, calm = short(pipeline)
    _, cut = run_in_process(pipeline, arguments, "runtime.micro_batch_size=3", runs="cut")
    assert_close(cut, calm)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["pretrain", "convert", "glue", "wmt", "charlm", "scm"])
def test_another_device_changes_nothing(pipeline, short, monkeypatch):
    """Of every task. Catches what `tests.property.test_another_device` does, in batches, losses,
    evaluations, checkpoints and what a run concludes with."""
    arguments, _, here = short(pipeline)
    monkeypatch.setattr(Accelerator, "device", OTHER)
    with another_device():
        _, there = run_in_process(pipeline, arguments, runs="there")
    assert_close(there, here)


@pytest.mark.slow
@every
def test_workers_and_gradient_checkpointing_change_nothing(pipeline, whole):
    arguments, _, calm = whole(pipeline)
    others = ["runtime.gradient_checkpointing=true", "runtime.num_workers=2"]
    _, folder = run_in_process(pipeline, arguments, *others, runs="others")
    assert_same(folder, calm)


@every
def test_more_processes_than_rows_of_a_step_are_refused(pipeline, small, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "99")
    fewest = ["training.tokens_per_update=60", "training.bucket_tokens=60"]
    fewest += ["data.filter.max_length=50", "data.max_train_pairs=1"]
    with pytest.raises(InputError, match="99 processes"):
        run_in_process(pipeline, small(pipeline), *(fewest if pipeline == "wmt" else []))


@every
def test_a_finished_run_is_not_run_again(pipeline, whole, monkeypatch, capsys):
    arguments, summary, folder = whole(pipeline)
    monkeypatch.setattr(Loop, "run", lambda self: pytest.fail("a finished run was trained again"))
    assert run_in_process(pipeline, arguments) == (summary, folder)
    assert "already done" in capsys.readouterr().out
    assert summary == json.loads((folder / "summary.json").read_text())


@every
def test_a_run_that_has_learnt_nothing_counts_as_degenerate(pipeline, short):
    arguments, summary, _ = short(pipeline)
    if pipeline == "convert":  # a few steps are enough to learn something
        still = "optimizer.learning_rate=1e-9"
        summary, _ = run_in_process(pipeline, arguments, still, runs="still")
    assert summary["status"] == "degenerate"
