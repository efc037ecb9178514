"""Pre-training from a command line to its records, in this process."""

import errno
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import roformer
from roformer.config.build import from_yaml
from roformer.config.schema import PretrainConfig
from roformer.data.random import IGNORED
from roformer.errors import InputError, one_line_errors
from roformer.models import transformer
from roformer.pipelines import run as runs
from roformer.tasks.mlm import MaskedLMTask
from roformer.training import task
from roformer.training.loop import Loop
from roformer.training.records import RunFolder
from tests.conf.composed import built
from tests.conftest import REPOSITORY
from tests.e2e.conftest import (
    assert_same,
    results,
    small_run,
    weights,
    write_corpus,
)

SUMMARY_KEYS = {
    "pipeline", "run_id", "model", "position", "recipe", "data", "seed", "status", "metrics", "steps",
    "tokens", "wall_seconds", "tokens_per_second", "peak_memory_bytes", "parameters", "command",
    "best",
}  # fmt: skip
SHORT = "training.steps=12"


@pytest.fixture
def copy(pretrained, arguments):
    """Return a copy of the whole run, where `arguments` has its runs."""
    runs = Path(arguments[-1].partition("=")[2])
    return Path(shutil.copytree(pretrained, runs / "pretrain" / pretrained.name, symlinks=True))


@pytest.mark.slow
def test_it_learns_more_than_word_frequencies(arguments):
    summary, _ = small_run(arguments, "training.steps=700", "training.evaluate_every=100")
    metrics = summary["metrics"]
    assert metrics["valid/mlm_loss"] < 0.9 * metrics["valid/unigram_entropy"]
    assert summary["status"] == "done"


def test_its_record_says_what_ran_and_what_came_out(pretrained):
    summary = json.loads((pretrained / "summary.json").read_text())
    assert summary.keys() == SUMMARY_KEYS
    assert summary["tokens"] == 24 * 8 * 32
    names = {path.name for path in pretrained.iterdir()}
    assert names >= {"config.yaml", "env.json", "command.txt", "metrics.jsonl", "tokenizer"}
    assert [row["step"] for row in results(pretrained)] == [4, 8, 12, 16, 20, 24]
    environment = json.loads((pretrained / "env.json").read_text())
    assert environment["seed"] == 0 and environment["data"] and environment["packages"]["torch"]


def test_the_metrics_are_of_the_validation_text(pretrained):
    """By torch's own loss. Catches a mean over blocks in place of tokens."""
    config = from_yaml(PretrainConfig, (pretrained / "config.yaml").read_text())
    task = MaskedLMTask(config)
    task.build_model()
    task.model.load_state_dict(weights(pretrained))
    batch = task.validation[range(16)]
    kept = batch["labels"] != IGNORED
    with torch.no_grad():
        logits = task.model.eval()(batch["input_ids"])
    logits = logits[torch.arange(16)[:, None], batch["predict"]][kept]
    labels = batch["labels"][kept]
    metrics = json.loads((pretrained / "summary.json").read_text())["metrics"]
    loss = functional.cross_entropy(logits, labels).item()
    hits = (logits.argmax(-1) == labels).double().mean().item()
    found = metrics["valid/mlm_loss"], metrics["valid/mlm_accuracy"]
    assert found == pytest.approx((loss, hits), rel=1e-4)


def test_the_switch_has_blocks_computed_again(arguments, monkeypatch):
    """That it changes no number is a law of tests/property/test_position.py."""
    seen, real = [], transformer.checkpoint
    monkeypatch.setattr(transformer, "checkpoint", lambda *a, **k: seen.append(a) or real(*a, **k))
    small_run(arguments, "training.steps=1", "runtime.gradient_checkpointing=true")
    assert len(seen) == 2


def test_a_stopped_run_goes_on(arguments, pretrained, stop_at, monkeypatch, capsys):
    """In its tracker, with other intervals, without a damaged checkpoint, to the same end.

    Catches an interval that is part of the run id, and a flipped bit that only the checksum shows.
    """
    ids, tracker = [], runs.NoTracker()
    tracker.run_id = "its"
    monkeypatch.setattr(runs, "open_tracker", lambda *given: ids.append(given[-1]) or tracker)
    go_on = stop_at(16)
    with pytest.raises(KeyboardInterrupt):
        small_run(arguments)
    go_on()
    (folder,) = Path(arguments[-1].partition("=")[2], "pretrain").iterdir()
    file = folder / "checkpoints" / "step_00000012" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    others = ["training.log_every=5", "training.checkpoint_every=8", "training.evaluate_every=24"]
    summary, _ = small_run(arguments, *others)
    out = capsys.readouterr().out
    assert "model.safetensors does not match its checksum" in out and "resuming at step 6" in out
    assert ids == [None, "its"]
    assert [row["step"] for row in results(folder)] == [4, 10, 15, 20, 24]
    torch.testing.assert_close(weights(folder), weights(pretrained), rtol=0, atol=0)
    known = json.loads((pretrained / "summary.json").read_text())
    assert summary["metrics"] == known["metrics"]
    environment = json.loads((folder / "env.json").read_text())
    head = ["git", "-C", str(REPOSITORY), "rev-parse", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True).stdout.strip() or None
    assert environment["resumed"] and environment["commit"] == commit


def test_a_finished_run_keeps_moments_on_demand_alone(arguments, pretrained):
    assert len(list(pretrained.glob("checkpoints/step_*"))) == 4
    assert not list(pretrained.glob("checkpoints/*/optimizer.safetensors"))
    keeping = [SHORT, "runtime.keep_optimizer=true"]
    _, folder = small_run(arguments, *keeping)
    kept = sorted(folder.glob("checkpoints/step_*/optimizer.safetensors"))
    assert len(kept) == 2
    small_run(arguments, SHORT)  # done: what was kept stays
    assert sorted(folder.glob("checkpoints/step_*/optimizer.safetensors")) == kept


@pytest.mark.slow
def test_chosen_steps_are_kept_and_change_nothing_else(arguments, pretrained, resumed):
    """Also for a run that was killed; its record and id are the same as without kept steps."""
    keeping = ["training.keep_at=[5,9,24]", "runtime.keep_checkpoints=1"]
    _, folder = resumed(8, small_run, arguments, *keeping)
    assert folder.name == pretrained.name
    assert_same(folder, pretrained)
    steps = {path.name[-2:] for path in folder.glob("checkpoints/step_*")}
    best = (folder / "checkpoints" / "best").resolve().name[-2:]
    assert steps == {"05", "09", "24", best}
    _, until = small_run(arguments, "training.keep_at=[9]", runs="other")
    one, other = (weights(path, "step_00000009") for path in (folder, until))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_step_that_was_not_kept_needs_a_new_run(arguments, copy):
    """For a finished run, and one that resumes after the step; other steps' checkpoints stay."""
    with pytest.raises(InputError, match=r"no checkpoint of step 3: .*keep_at=\[3\] resume=false"):
        small_run(arguments, f"init_from={copy}@3", "seed=1")
    small_run(arguments, "training.keep_at=[6]")
    for _ in ("finished", "unfinished"):
        with pytest.raises(InputError, match=r"=\[3\]: .* at step 24 .*: resume=false trains"):
            small_run(arguments, "training.keep_at=[3,6]")
        (copy / "summary.json").unlink(missing_ok=True)


@pytest.mark.parametrize(("seed", "earlier"), [(9, False), (0, True)])
def test_a_full_disk_names_the_run_and_its_checkpoints(
    arguments, copy, monkeypatch, capsys, seed, earlier
):
    """Also if the library that writes does not name its file."""
    (copy / "summary.json").unlink()
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(Loop, "run", lambda loop: (_ for _ in ()).throw(full))
    with pytest.raises(SystemExit), one_line_errors():
        small_run(arguments, f"seed={seed}")
    error = capsys.readouterr().err
    assert re.search(r"No space left .*/pretrain/roformer-rotary-smoke-", error)
    assert ("; earlier checkpoints are intact" in error) == earlier


def test_a_run_killed_before_its_summary_is_summed_up(arguments, pretrained, copy):
    """Its moments are gone by then, and not needed."""
    assert not list(copy.glob("checkpoints/*/optimizer.safetensors"))
    (copy / "summary.json").unlink()
    summary, folder = small_run(arguments)
    assert folder == copy and summary["steps"] == 24
    assert_same(copy, pretrained)
    assert summary["metrics"] == json.loads((pretrained / "summary.json").read_text())["metrics"]


def test_a_trial_of_few_steps_alarms_nobody(arguments, capsys, monkeypatch):
    few = [*arguments, "training.steps=3"]
    summary, _ = small_run(few)
    told = capsys.readouterr().out
    assert summary["status"] == "degenerate"
    assert "as expected after so few steps (3); status: degenerate" in told
    assert "warning" not in told and "counts as degenerate" not in told
    monkeypatch.setattr(task, "TRIAL", 3)
    small_run(few, runs="longer")
    told = capsys.readouterr().out
    assert "warning: after 3 steps the model is no better than" in told
    assert "the run counts as degenerate" in told


def test_other_data_is_not_mixed_into_a_run(arguments, tmp_path):
    """Neither a finished run nor an unfinished one passes for one on a changed corpus.

    A new run moves it aside.
    """
    text = tmp_path / "text.jsonl"
    here = [f"data.path={text}", "training.steps=2"]
    write_corpus(text)
    _, folder = small_run(arguments, *here)
    write_corpus(text, documents=310)
    with pytest.raises(InputError, match=r"started on other data .*resume=false starts over"):
        small_run(arguments, *here)
    (folder / "summary.json").unlink()
    with pytest.raises(InputError, match="started on other data"):
        small_run(arguments, *here)
    assert small_run(arguments, *here, "resume=false")[0]["steps"] == 2
    assert (folder.with_name(f"{folder.name}.before-1") / "config.yaml").is_file()


def test_a_run_that_is_being_written_is_refused(arguments, copy):
    (copy / "summary.json").unlink()
    writing = rf"being written by process {os.getpid()} on .+: wait"
    with RunFolder(copy).locked():
        for overrides in ([], ["resume=false"]):
            with pytest.raises(InputError, match=writing):
                small_run(arguments, *overrides)
    assert small_run(arguments)[0]["steps"] == 24
    assert not list(copy.parents[1].glob(".locks/*"))


@pytest.mark.parametrize(
    ("word", "message"),
    [("resume=true", "nothing to resume"), ("runtime.fsdp=true", "shares one model .*: start 2")],
)
def test_a_run_that_cannot_begin_leaves_no_record(arguments, tmp_path, word, message):
    with pytest.raises(InputError, match=message):
        small_run(arguments, word)
    assert not list((tmp_path / "runs").glob("**/*.yaml"))


def test_shares_cover_every_sample_once_whatever_is_left_over(arguments):
    for micro, most in (("null", 8), ("2", 2)):
        words = [*arguments, f"runtime.micro_batch_size={micro}"]
        task = MaskedLMTask(built("pretrain", words))
        for processes, count in itertools.product((1, 2, 3, 4, 8), (1, 2, 5, 8)):
            numbers = range(16, 16 + count)
            shares = [task._share(numbers, rank, processes) for rank in range(processes)]
            assert [n for share in shares for batch in share for n in batch] == list(numbers)
            assert all(1 <= len(batch) <= most for share in shares for batch in share)


def test_a_sigterm_that_is_repeated_still_saves(arguments, monkeypatch, tmp_path, capsys):
    """Launchers and batch systems may both send one; at step 5, where none is written otherwise."""
    update = Loop._step

    def told(loop, batches):
        update(loop, batches)
        if loop.state.step == 5:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Loop, "_step", told)
    with pytest.raises(SystemExit) as left:
        small_run(arguments)
    assert left.value.code == 143
    assert "stopped at step 6, checkpoint saved" in capsys.readouterr().out
    (run,) = (tmp_path / "runs" / "pretrain").iterdir()
    assert (run / "checkpoints" / "last").resolve().name == "step_00000006"


def test_a_sigterm_in_the_last_evaluation_saves_and_scores_nothing(arguments, monkeypatch):
    real, few = MaskedLMTask.evaluate, ["training.steps=6", "training.evaluate_every=6"]

    def told(task, *given):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(task, *given)

    with monkeypatch.context() as patch:
        patch.setattr(MaskedLMTask, "evaluate", told)
        patch.setattr(MaskedLMTask, "conclude", None)
        with pytest.raises(SystemExit) as left:
            small_run(arguments, *few)
    assert left.value.code == 143
    assert small_run(arguments, *few)[0]["steps"] == 6


def test_every_option_trains(arguments):
    options = ["training.precision=bf16", "training.documents=isolate", "masking.whole_word=true"]
    options += ["model.norm=pre", "model.position.layout=half", "model.position.fraction=0.5"]
    _, folder = small_run(arguments, *options, "schedule.kind=cosine")
    losses = [row["train/loss"] for row in results(folder)]
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("fast", [True, False])
def test_bf16_without_hardware_for_it_is_told(arguments, fast, monkeypatch, capsys):
    able = {"amx_bf16": fast, "avx512_bf16": False}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able, raising=False)
    small_run(arguments, "training.precision=bf16", "training.steps=1")
    assert ("warning: bf16 is slower" in capsys.readouterr().out) != fast


def test_pairs_of_segments_are_told_beside_the_masked_tokens(arguments, capsys):
    pairs = [SHORT, "objective=mlm_nsp", "masking.whole_word=true"]
    summary, folder = small_run(arguments, *pairs)
    assert ", valid/nsp_accuracy " in capsys.readouterr().out
    metrics = summary["metrics"]
    assert 0.2 < metrics["valid/nsp_loss"] < 2 and 0 < metrics["valid/nsp_accuracy"] < 1
    for row in results(folder):
        parts = row["train/mlm_loss"], row["train/nsp_loss"]
        assert row["train/loss"] == pytest.approx(sum(parts)) and 0.2 < parts[1] < 2
    trained = roformer.load_model(folder)
    assert trained.model.relation is not None
    assert len(trained.fill_mask("bel [MASK]")[0]) == 5


def test_one_seed_gives_both_models_the_same_order_and_masks(arguments):
    """The models differ in their encoding, not in what they read."""
    tasks = []
    for model in ("roformer", "bert"):
        tasks.append(MaskedLMTask(built("pretrain", [*arguments, f"model={model}"])))
        tasks[-1].build_model()
    rotary, learned = (task.batches[task.keys(3, 0, 1)[0]] for task in tasks)
    assert all(torch.equal(rotary[name], learned[name]) for name in rotary)
