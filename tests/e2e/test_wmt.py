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
    steps = ["training.steps=200", "training.evaluate_every=100", "training.checkpoint_every=20"]
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
    assert summary["averaged"] == ["step_00000160", "step_00000180", "step_00000200"]
    assert summary["test_set"]["name"] == "test" and summary["test_set"]["lines"] == 15
    texts = {
        name: (folder / "translations" / f"test.{name}.txt").read_text().splitlines()
        for name in ("source", "reference", "single", "averaged")
    }
    assert {len(lines) for lines in texts.values()} == {15}
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
    assert last["step"] == 200 and last["test/sacrebleu"] == metrics["test/sacrebleu"]
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


def test_batch_size_does_not_change_translations(trained, monkeypatch):
    _, folder = trained
    translator = load_translator(folder)
    lines = (folder / "translations" / "test.source.txt").read_text().splitlines()
    outcomes = []
    for tokens in (1, 20, 4096):
        monkeypatch.setattr("roformer.inference.translate.BATCH_TOKENS", tokens)
        outcomes.append([best[0] for best in translator.translate(lines)])
    for outcome in outcomes[1:]:
        assert [t.text for t in outcome] == [t.text for t in outcomes[0]]
        assert [t.score for t in outcome] == pytest.approx([t.score for t in outcomes[0]], abs=1e-4)
    written = (folder / "translations" / "test.averaged.txt").read_text().splitlines()
    assert [t.text for t in outcomes[0]] == written


@pytest.mark.slow
def test_translate_script(trained, tmp_path):
    """In the order of the lines, whatever their lengths; an empty line stays one."""
    _, folder = trained
    source = "old cat\n\nred house and new tree sees blue dog\ndog\n" + "cat sees dog " * 60 + "\n"
    code, out, err = script("translate", folder, lines=source)
    assert (code, err) == (0, "line 5 is longer than 100 tokens and was cut\n")
    lines = out.split("\n")
    assert len(lines) == 6 and lines[1] == "" and lines[3].startswith("Hund")
    assert len(lines[2].split()) > len(lines[0].split())
    code, out, _ = script("translate", folder, "--n-best", 3, lines="old cat\ndog\n")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    for first in (0, 3):
        scores = [float(row[1]) for row in rows[first : first + 3]]
        assert scores == sorted(scores, reverse=True)
    assert rows[0][2] == lines[0] and rows[3][2] == lines[3]
    (tmp_path / "bad.en").write_bytes(b"dog\nca\xfft\n")
    for words, message in (
        (["--n-best", "9"], "error: n_best=9 is not from 1 to beam=4: widen the beam"),
        ([tmp_path / "bad.en"], f"error: {tmp_path / 'bad.en'}:2: not UTF-8"),
    ):
        code, _, err = script("translate", folder, *words)
        assert code == 2 and err.startswith(message) and err.count("\n") == 1


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
    assert code == 0 and "mean of step_00000200, step_00000180" in out
    mean, parts = (
        load_file(tmp_path / "mean" / "model.safetensors"),
        [load_file(path / "model.safetensors") for path in (first, second)],
    )
    assert torch.allclose(
        mean["tokens.weight"], (parts[0]["tokens.weight"] + parts[1]["tokens.weight"]) / 2
    )
    mine = tmp_path / "mine"
    mine.mkdir()
    for words, message in (
        ([first, second, "--last", 2], "--last takes one run"),
        ([folder, "--last", 0], "--last: give at least 1, not 0"),
        ([folder], f"{folder} is a run: give --last N"),
        ([tmp_path / "none"], f"{tmp_path / 'none'}: no such run or checkpoint"),
        ([first, "--output", mine], f"{mine} exists and is no mean of these"),
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
