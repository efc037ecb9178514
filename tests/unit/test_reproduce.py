"""The driver of `make reproduce`: which runs it will make, and how a stage is told of."""

import re
import signal
import subprocess
import sys
import time

import pytest

from roformer.commands import Command
from scripts import reproduce
from tests.conftest import REPOSITORY
from tests.recorded_runs import recorded


def test_its_runs_are_the_recorded_ones():
    """Recipe mini is what was recorded, on a CPU with bf16."""
    names = set()
    for stage in reproduce.STAGES:
        overrides = [*reproduce.overrides_of(stage, "mini"), "training.precision=bf16"]
        if stage.pipeline == "glue":
            overrides.append("pretraining=['recipe=mini','training.precision=bf16']")
        names |= {folder.name for folder in reproduce.folders_of(stage, overrides)}
    assert len(names) == 16 and names == {run.name for run in recorded("reproduce")}


@pytest.mark.parametrize("recipe", ["smoke", "mini"])
def test_the_rest_of_the_paper_composes_and_each_stage_has_its_own_runs(recipe):
    stages = reproduce.STAGES + reproduce.REST
    names = [reproduce.name_of(stage) for stage in stages]
    found = [
        folder
        for stage in reproduce.REST
        for folder in reproduce.folders_of(stage, reproduce.overrides_of(stage, recipe))
    ]
    assert len(set(names)) == len(stages) and len(set(found)) == len(found)
    kinds = [folder.parent.name for folder in found]
    assert {kind: kinds.count(kind) for kind in ("charlm", "clm", "scm")} == {
        "charlm": 3,
        "clm": 6,
        "scm": 4,
    }
    assert kinds.count("pretrain") >= 2  # a run a stage


def stages(tmp_path, *commands, jobs=1):
    reproduce.run_stages(
        {
            Command(f"[{number}/2] x", ("sh", "-c", command), tmp_path / f"{number}.log"): (
                lambda number=number: f"loss {number}.0"
            )
            for number, command in enumerate(commands, 1)
        },
        jobs,
    )


def test_a_stage_is_one_line_and_its_output_a_file(tmp_path, capsys):
    stages(tmp_path, "echo a lot", "echo more")
    out = re.sub(r"0:0\d", "0:00", capsys.readouterr().out)
    assert out == "[1/2] x … 0:00: loss 1.0\n[2/2] x … 0:00: loss 2.0\n"
    assert (tmp_path / "1.log").read_text() == "a lot\n"


def test_a_failed_stage_ends_the_command_with_its_code(tmp_path, capsys):
    with pytest.raises(SystemExit) as raised:
        stages(tmp_path, "seq 30; echo 'error: no such data' >&2; exit 3", "echo late")
    assert raised.value.code == 3 and not (tmp_path / "2.log").exists()
    out, error = capsys.readouterr()
    assert "error: no such data" in error and "\n20\n" in error and "\n10\n" not in error
    assert str(tmp_path / "1.log") in error and "ended with code 3" in error and not out


def test_the_stage_beside_a_failed_one_stops_in_order(tmp_path, capsys):
    """It is told to save and waited for."""
    begun, saved = tmp_path / "begun", tmp_path / "saved"
    wait = "while :; do sleep 0.05; done"
    beside = f"trap 'sleep 0.5; touch {saved}; exit' TERM; touch {begun}; {wait}"
    fail = f"until test -e {begun}; do sleep 0.05; done; exit 4"
    with pytest.raises(SystemExit) as raised:
        stages(tmp_path, beside, fail, jobs=2)
    assert raised.value.code == 4 and saved.is_file()
    assert capsys.readouterr().err.count("ended with code") == 1


def test_a_stage_killed_from_outside_is_no_success(tmp_path):
    with pytest.raises(SystemExit) as raised:
        stages(tmp_path, "kill -9 $$")
    assert raised.value.code == 1


def test_the_terminal_shows_what_runs_in_place(tmp_path, monkeypatch, capsys):
    """Two lines while two stages run; at the end a line each stays, and nothing else."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    stages(tmp_path, "echo step 1; sleep 2", "echo step 2; sleep 2", jobs=2)
    screen, row = [""], 0
    for part in re.split(r"(\x1b\[F|\x1b\[J|\r|\n)", out := capsys.readouterr().out):
        if part == "\x1b[F":
            row -= 1
        elif part == "\x1b[J":
            del screen[row:]
            screen.append("")
        elif part == "\n":
            row += 1
            screen.append("")
        elif part != "\r":
            screen[row] += part
    assert re.search(r"\[1/2\] x … 0:0\d  step 1\n\[2/2\] x … 0:0\d  step 2", out)
    assert sorted(re.sub(r"0:0\d", "", line) for line in screen) == [
        "",
        "[1/2] x … : loss 1.0",
        "[2/2] x … : loss 2.0",
    ]


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
        ("stages", 1, 2, (1, [])),
        ("glue", 2, 2, (1, [])),
        ("clm", 6, 6, (6, ["runtime.threads=1"])),
        ("wmt", 2, 1, (1, [])),
    ],
)
def test_a_stage_alone_has_all_cores(monkeypatch, pipeline, stages, jobs, expected):
    """Also one of a pipeline whose tasks run side by side; more stages than cores have one each."""
    monkeypatch.setattr(reproduce, "usable_cores", lambda: [0, 1, 2, 3])
    assert reproduce.side_by_side(pipeline, stages, jobs) == expected


def test_a_mistake_is_told_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduce.py", f"runtime.runs_dir={tmp_path}", "sed=1"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as raised:
        reproduce.main()
    error = capsys.readouterr().err
    assert raised.value.code == 2 and not list(tmp_path.iterdir())
    assert error.startswith("error: ") and "sed" in error and error.count("\n") == 1


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
    assert sorted(line[:6] for line in lines[1:8]) == [f"[{number}/7] " for number in range(1, 8)]
    end = lines[lines.index("") + 1 :]
    assert len(end) <= 24 and max(map(len, end[:-2])) <= 100
    assert any(line.startswith("  masked-LM loss") and "other recipe" in line for line in end)
    for name, line in zip(("dashboard.html", "statistics.md"), end[-2:], strict=True):
        file = tmp_path / "runs" / "report" / name
        assert file.is_file() and line.endswith(str(file))
