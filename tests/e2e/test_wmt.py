"""Translation from files to scores, in this process, and the scripts next to it."""

import functools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch._dynamo.utils import counters

from roformer.errors import InputError
from roformer.evaluation.bleu import translation_scores
from roformer.inference.translate import load_translator
from roformer.report.resampling import bleu
from roformer.training.averaging import average, last_checkpoints
from tests.e2e.conftest import results, weights
from tests.e2e.wmt_runs import SMALL, small_run, write_parallel_text
from tests.scripts import run_script
from tests.trained import CASED, run_of, stored


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parallel")
    write_parallel_text(folder / "text")
    return [f"data.path={folder / 'text'}", f"runtime.cache_dir={folder / 'cache'}"]


@pytest.fixture
def arguments(text, tmp_path):
    return [*SMALL, *text, f"runtime.runs_dir={tmp_path / 'runs'}"]


@pytest.fixture(scope="session")
def trained(text, tmp_path_factory):
    """Return (summary, folder) of a run that has learnt something."""
    folder = tmp_path_factory.mktemp("trained")
    steps = ["training.steps=140", "training.evaluate_every=70", "training.checkpoint_every=20"]
    arguments = [*SMALL, *text, *steps, f"runtime.runs_dir={folder / 'runs'}"]
    return small_run(arguments, "training.bucket_tokens=256")


def script(name, *arguments, lines=""):
    """Run a script; return (code, stdout, stderr)."""
    done = run_script(name, *arguments, stdin=lines, cwd=Path.cwd())
    return done.returncode, done.stdout, done.stderr


def test_it_learns_and_records(trained):
    summary, folder = trained
    metrics = summary["metrics"]
    assert summary["status"] == "done"
    assert metrics["valid/loss"] < 0.5 * metrics["valid/unigram_entropy"]
    assert metrics["test/sacrebleu"] > 40 and metrics["test/sacrebleu_single"] > 40
    assert summary["averaged"] == ["step_00000100", "step_00000120", "step_00000140"]
    assert summary["test_set"]["name"] == "test" and summary["test_set"]["lines"] == 15
    texts = {
        name: (folder / "translations" / f"test.{name}.txt").read_text().splitlines()
        for name in ("source", "reference", "single", "averaged")
    }
    assert {len(lines) for lines in texts.values()} == {15}
    translated = load_translator(folder).translate(texts["source"])
    assert [best.text for (best,) in translated] == texts["averaged"]
    scores = translation_scores(texts["averaged"], texts["reference"], "de")._asdict()
    for name, score in scores.items():
        assert metrics[f"test/{name}"] == pytest.approx(score.value)
        assert summary["signatures"][name] == score.signature
    counts = json.loads((folder / "bleu_statistics.json").read_text())
    assert counts["test_set"] == summary["test_set"]
    assert counts["signature"] == summary["signatures"]["sacrebleu"]
    for name, metric in (("averaged", "test/sacrebleu"), ("single", "test/sacrebleu_single")):
        lines = counts["systems"][name]
        assert len(lines) == 15 and bleu(np.array(lines).sum(0)) == metrics[metric]
    rows = [row for row in results(folder) if "train/targets_per_update" in row]
    assert all(0 < row["train/targets_per_update"] <= 256 for row in rows)
    ends = [0, *(row["step"] for row in rows)]
    targets = [
        row["train/targets_per_update"] * (row["step"] - before)
        for row, before in zip(rows, ends, strict=False)
    ]
    assert sum(targets) == pytest.approx(summary["tokens"])
    last = results(folder)[-1]
    assert last["step"] == 140 and last["test/sacrebleu"] == metrics["test/sacrebleu"]
    assert summary == json.loads((folder / "summary.json").read_text())


def test_the_average_is_the_mean_of_the_last(trained):
    _, folder = trained
    paths = last_checkpoints(folder, 3, 20)
    tensors = [load_file(path / "model.safetensors") for path in paths]
    for name, tensor in weights(folder, "averaged").items():
        assert torch.allclose(tensor, sum(t[name] for t in tensors) / 3, atol=1e-7)
    assert not torch.equal(
        weights(folder, "averaged")["tokens.weight"], tensors[-1]["tokens.weight"]
    )


def test_a_line_break_that_a_model_writes_does_not_shift_the_lines(trained, monkeypatch):
    translator = load_translator(trained[1])
    broken = ["Hund\nund\r\nKatze"]
    monkeypatch.setattr(translator.tokenizer, "decode_batch", lambda ids, language: broken)
    ((found,),) = translator.translate(["dog and cat"])
    assert found.text == "Hund und  Katze"


def test_averaging_refuses_what_does_not_belong_together(tmp_path):
    run = run_of(tmp_path / "run", steps=(1, 2))
    paths = last_checkpoints(run, 2)
    shutil.copytree(paths[0], damaged := tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"x")
    other = run_of(tmp_path / "other", stored(tokenizer=CASED)) / "checkpoints" / "last"
    for path, message in (
        (tmp_path / "nowhere", "nowhere cannot be averaged: it was never completed"),
        (other, "is not of the same model as .*: tokenizer"),
        (damaged, r"model\.safetensors is truncated"),
    ):
        with pytest.raises(InputError, match=message):
            average([paths[0], path])
    with pytest.raises(InputError, match=r"has \d checkpoints to average .*, not 30"):
        last_checkpoints(run, 30)


@pytest.mark.slow
def test_average_script(trained, tmp_path):
    _, folder = trained
    first, second = last_checkpoints(folder, 2)
    code, out, _ = script("average", second, first, "--output", tmp_path / "mean")
    assert code == 0 and "mean of step_00000140, step_00000120" in out
    assert (tmp_path / "mean" / "model.safetensors").is_file()
    for words, message in (
        ([first, second, "--last", 2], "--last takes one run"),
        ([folder, "--last", 0], "--last: give at least 1, not 0"),
        ([folder], f"{folder} is a run: give --last N"),
        (
            [first, "--output", tmp_path / "mean"],
            f"{tmp_path / 'mean'} exists and is no mean of these",
        ),
        ([folder, "--last", 2], f"{folder / 'checkpoints' / 'averaged'} exists and is no mean"),
    ):
        code, _, err = script("average", *words)
        assert code == 2 and f"error: {message}" in err.replace("argument ", "")
    assert script("average", folder, "--last", 3)[0] == 0  # the existing average


@pytest.mark.slow
def test_only_whole_passes_are_compiled(arguments, monkeypatch):
    """Encoder and decoder, at one length, at any, and in evaluation; no step of a search."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    counters.clear()
    small_run(arguments, "runtime.compile=true", "training.steps=12", "training.average=1")
    assert 2 <= counters["stats"]["unique_graphs"] <= 2 * 6
