"""The driver of `make reproduce`: which runs it will make, and what it prints of each stage."""

import json
import signal
import subprocess
import sys
import time

import pytest

from roformer import registry
from roformer.config.composing import compose
from roformer.pipelines import grid, reproduce
from roformer.pipelines.run import outcome as run_outcome
from tests.conftest import REPOSITORY
from tests.recorded_runs import recorded


def test_the_whole_paper_composes_and_its_first_half_is_the_recorded_runs():
    """Recipe mini is what was recorded, on a CPU whose `auto` is fp32."""
    stages = reproduce.stages_of("mini", ["training.precision=fp32"], everything=True)
    assert len({stage.name for stage in stages}) == len(stages)
    names = {folder.name for stage in stages[:6] for folder in stage.folders}
    pretraining = "pretraining=['recipe=mini','training.precision=fp32']"
    for stage in stages[2:4]:
        names -= {folder.name for folder in stage.folders}
        words = [*stage.overrides, "training.precision=fp32", pretraining]
        names |= {folder.name for folder in stage.pipeline.folders(compose("glue", words))}
    assert len(names) == 16 and names == {run.name for run in recorded("reproduce")}
    found = [folder for stage in stages[6:] for folder in stage.folders]
    kinds = [folder.parent.name for folder in found]
    assert [kinds.count(kind) for kind in ("charlm", "clm", "scm")] == [3, 6, 4]
    assert kinds.count("pretrain") >= 2  # one run per stage
    assert len(set(found)) == len(found)


def test_a_failed_stage_is_listed_at_the_end_and_gives_the_code(tmp_path, monkeypatch, capsys):
    """Catches failures that are forgotten: the command would end with 0."""
    monkeypatch.setattr(sys, "executable", "true")  # the report
    launcher = ["sh", "-c", 'case "$*" in *model=bert*) exit 3;; esac', "sh"]
    words = ["recipe=smoke", f"runtime.runs_dir={tmp_path}", "runtime.device=cpu"]
    with pytest.raises(SystemExit) as left:
        reproduce.reproduce(words, launcher, 2, everything=False, quiet=True)
    out, error = capsys.readouterr()
    assert left.value.code == 3 and "done" not in out
    assert error.endswith("error: 2 of 7 stages failed: [2/7] pretrain-bert; [4/7] glue-bert\n")


def test_a_failed_stage_shows_its_last_lines_and_the_others_go_on(tmp_path, capsys):
    commands = ("seq 30; echo 'error: no such data' >&2; exit 3", "true")
    outcomes = {}
    for number, text in enumerate(commands, 1):
        log = tmp_path / f"{number}.log"
        outcomes[grid.command(f"[{number}/2] x", ["sh", "-c", text], tmp_path, log)] = str
    failed = reproduce.run_stages(outcomes, 1)
    out, error = capsys.readouterr()
    assert [job.code for job in failed] == [3] and "[2/2] x … 0:0" in out and "[1/2]" not in out
    assert "error: no such data" in error and "\n20\n" in error and "\n10\n" not in error
    assert str(tmp_path / "1.log") in error and "ended with code 3" in error


def test_the_outcome_of_runs_is_their_headline_and_what_is_wrong(tmp_path):
    def outcome(pipeline, *runs):
        folders = [tmp_path / f"{pipeline}{n}" for n in range(len(runs))]
        for folder, (status, metrics) in zip(folders, runs, strict=True):
            folder.mkdir(exist_ok=True)
            summary = {"status": status, "headline": next(iter(metrics), ""), "metrics": metrics}
            (folder / "summary.json").write_text(json.dumps(summary))
        return run_outcome(registry.get(pipeline), folders)

    done, failed = ("done", {"test/sacrebleu": 27.5}), ("failed", {})
    assert outcome("wmt", done) == "test/sacrebleu 27.500"
    assert outcome("wmt", failed) == "test/sacrebleu NaN [failed]"
    assert outcome("wmt", done, failed) == "test/sacrebleu 27.500, test/sacrebleu NaN [1 failed]"
    assert outcome("wmt", *[done] * 9, ("degenerate", {})) == (
        "10 runs [1 degenerate: no better than chance]"
    )
    tasks = [("done", {"mrpc/f1": 0.5}), ("done", {"stsb/spearman": 0.5})]
    assert outcome("glue", *tasks) == "mrpc 0.500, stsb 0.500"
    assert outcome("glue", tasks[0]) == "mrpc/f1 0.500"


def test_models_share_the_cores_of_a_cpu_and_fill_an_accelerator(monkeypatch):
    monkeypatch.setattr(reproduce, "usable_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(reproduce.torch.accelerator, "is_available", lambda: False)
    assert reproduce.default_jobs(["python"]) == 2
    assert reproduce.default_jobs(["torchrun", "--nproc-per-node=2"]) == 1
    monkeypatch.setattr(reproduce.torch.accelerator, "is_available", lambda: True)
    assert reproduce.default_jobs(["python"]) == 1


@pytest.mark.parametrize(
    ("pipeline", "stages", "jobs", "expected"),
    [
        ("pretrain", 2, 2, (2, ["runtime.threads=2"])),
        ("glue", 2, 2, (2, ["jobs=2", "runtime.threads=1"])),
        ("clm", 6, 6, (6, ["runtime.threads=1"])),
        ("wmt", 2, 1, (1, [])),
    ],
)
def test_a_stage_alone_has_all_cores(monkeypatch, pipeline, stages, jobs, expected):
    """Runs of a grid have one core each; more stages than cores have one each."""
    monkeypatch.setattr(reproduce, "usable_cores", lambda: [0, 1, 2, 3])
    assert reproduce.side_by_side(registry.get(pipeline), stages, jobs) == expected


@pytest.mark.slow
def test_stopped_and_started_again_it_goes_on_to_the_end(tmp_path):
    """Stopped in the third stage: the first two are kept, and the end has tables and a dashboard."""
    command = [sys.executable, "scripts/reproduce.py", "--jobs", "2"]
    command += ["recipe=smoke", "tracker=none"]
    command += [f"runtime.runs_dir={tmp_path / 'runs'}", f"runtime.cache_dir={tmp_path / 'cache'}"]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    log = tmp_path / "runs" / "reproduce" / "3-glue-roformer.log"
    while not log.is_file():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 143
    assert (
        out.startswith("7 stages at recipe smoke, up to 2 side by side; ")
        and "valid/mlm_loss" in out
    )
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("7 stages at recipe smoke, 2 of them done, up to 2 side by side; ")
    assert sorted(line[:6] for line in lines[2:9]) == [f"[{number}/7] " for number in range(1, 8)]
    end = lines[lines.index("") + 1 :]
    assert len(end) <= 24 and max(map(len, end[:-2])) <= 100
    assert any(line.startswith("  masked-LM loss") and "other recipe" in line for line in end)
    for name, line in zip(("dashboard.html", "statistics.md"), end[-2:], strict=True):
        file = tmp_path / "runs" / "report" / name
        assert file.is_file() and line.endswith(str(file))
