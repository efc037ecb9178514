"""The report of what needs a GPU: its commands are ones that run, and no part ends another."""

import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_report
from benchmarks.__main__ import SUITES
from benchmarks.gpu_report import PARTS, Part, Settings, report, run_command
from roformer.cli import compose
from roformer.config.build import build
from roformer.errors import InputError
from roformer.pipelines import registry

PIPELINES = registry.pipelines()
SCRIPTS = {pipeline.command: name for name, pipeline in PIPELINES.items()}


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_report, "RUNS", tmp_path / "runs")
    return Settings("cpu", tmp_path / "report")


def python(code):
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_commands_are_of_scripts_and_suites_that_are_there(device, tmp_path):
    """Catches a renamed suite, and an override that some pipeline does not have."""
    trained, refused = set(), []
    for part in PARTS.values():
        for name, (script, *words) in part.commands(Settings(device, tmp_path)).items():
            if script in SCRIPTS:
                trained.add(pipeline := SCRIPTS[script])
                try:
                    build(registry.load(PIPELINES[pipeline].config), compose(pipeline, words))
                except InputError:  # fp16 is refused on a CPU: so a trial shows a failure too
                    refused.append(name)
            elif words[0] == "benchmarks":
                assert words[1] in SUITES
    assert trained == set(PIPELINES) and refused == (["fp16"] if device == "cpu" else [])


@pytest.mark.slow
def test_a_command_out_of_time_is_ended_with_what_it_started(settings):
    """Catches ending the command alone: what it started holds its output, and would be waited for."""
    code = "import subprocess; print('begun', flush=True); subprocess.run(['sleep', '1000'])"
    ended = run_command(python(code), 3, settings)
    assert ended.status.startswith("out of time after 3 s") and ended.output == "begun\n"
    assert run_command(python(code), 0, settings).status == "not begun"


def test_a_part_that_fails_is_told_and_the_next_one_runs(settings, monkeypatch, capsys):
    """Also where its record is damaged."""

    def commands(code):
        return lambda settings: {"only": python(code)[1:]}

    def damaged(settings, ended):
        return json.loads("{")

    def whole(settings, ended):
        return [["said"], [ended["only"].output.strip()]]

    monkeypatch.setattr(gpu_report, "packages", lambda: [("numpy", "2.4"), ("hydra-core", None)])
    parts = [
        Part("First", 1, commands("raise SystemExit('a GPU fell over')"), damaged),
        Part("Second", 1, commands("print('well')"), whole),
    ]
    report(settings, parts, 5)
    text = (settings.output / "report.md").read_text()
    assert "failed (1)" in text and "(a GPU fell over)" in text and "| well |" in text
    assert "no number here is a measurement" in text
    found = json.loads((settings.output / "report.json").read_text())
    assert [part["commands"][0]["status"] for part in found["parts"]] == ["failed (1)", "done"]
    said = capsys.readouterr().out
    assert said.startswith("missing here, parts that need them will fail and say so: hydra-core\n")
    assert {file.name for file in settings.output.iterdir()} == {
        *("report.md", "report.json", "log.txt")
    }


def test_curves_are_compared_with_fp32(settings):
    for precision, loss in (("fp32", 5.0), ("bf16", 5.25)):
        run = gpu_report.RUNS / f"curves-{precision}" / "pretrain" / "id"
        run.mkdir(parents=True)
        rows = [{"step": 30, "train/loss": loss}, {"step": 30, "valid/mlm_loss": 1.0}]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = gpu_report.read_curves(settings, {})
    assert table == [
        ["step", "fp32", "bf16", "fp16", "bf16 - fp32", "fp16 - fp32"],
        ["30", "5.0000", "5.2500", "", "+0.2500", ""],
    ]


def test_without_a_gpu_it_is_refused_in_a_line(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", [str(Path(gpu_report.__file__))])
    with pytest.raises(SystemExit) as left:
        gpu_report.main()
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "run this on a machine with a GPU; --dry-run shows what it does" in line
