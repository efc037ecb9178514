"""The driver of studies: which commands, and what becomes of runs that fail."""

import re

import pytest

from roformer.report.runs import RecordError
from roformer.report.studies import read_study
from scripts.sweep import commands_of, sweep
from tests.conftest import REPOSITORY
from tests.scripts import run_script

CONVERGENCE = REPOSITORY / "experiments" / "convergence"


def test_seeds_go_outermost_so_that_a_cut_study_is_balanced():
    words = commands_of(read_study(CONVERGENCE), [])
    seeds = [seed for seed in range(3) for _ in range(4)] + [3, 3, 4, 4, 5, 5]
    assert [command[-1] for command in words] == [f"seed={seed}" for seed in seeds]
    assert all(command[:2] == ["python", "scripts/pretrain.py"] for command in words)


def test_seeds_that_came_later_are_run_alone():
    study = read_study(CONVERGENCE)
    words = commands_of(study, [], [5, 3])
    assert [(command[-2], command[-1]) for command in words] == [
        (f"model={model}", f"seed={seed}") for seed in (3, 5) for model in ("roformer", "bert")
    ]
    with pytest.raises(RecordError, match="has no run of seed 3 there: see --dry-run"):
        commands_of(study, ["none"], [3])


def test_a_grid_takes_all_seeds_in_one_command():
    words = commands_of(read_study(CONVERGENCE.with_name("glue_real")), ["learned"])
    assert len(words) == 1 and words[0][-1] == "seed=[0,1,2,3,4]" and "model=bert" in words[0]


def test_grids_come_after_the_runs_that_they_may_begin_with():
    study = read_study(CONVERGENCE.with_name("glue_builtin_bert"))
    for seeds in ((), (0,)):
        words = commands_of(study, [], seeds)
        assert [command[1] for command in words] == [
            "scripts/pretrain.py",
            *["scripts/glue.py"] * 2,
        ]


@pytest.mark.parametrize(
    ("study", "names", "message"),
    [
        ("convergence", ["x"], "no configuration x: choose of rotary"),
        ("decay", [], "has no runs of its own"),
    ],
)
def test_what_is_not_there_is_one_line(study, names, message):
    with pytest.raises(RecordError, match=message):
        commands_of(read_study(CONVERGENCE.with_name(study)), names)


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize(("codes", "left_with"), [([3, 0], None), ([0, 2, 3], 2)])
def test_failed_runs_are_named_and_diverged_ones_counted(
    codes, left_with, quiet, tmp_path, capsys, monkeypatch
):
    """Quiet or not; what the commands print is in files, a line about each is on the terminal."""
    monkeypatch.setattr("scripts.sweep.outcome", lambda words: f"ended {words[-1]}")
    commands = [
        ["python", "-c", f"print('noise'); raise SystemExit({code})", f"seed={number}"]
        for number, code in enumerate(codes)
    ]
    if left_with is None:
        assert sweep(commands, 1, tmp_path, quiet=quiet) == 1
    else:
        with pytest.raises(SystemExit) as raised:
            sweep(commands, 2, tmp_path, quiet=quiet)
        assert raised.value.code == left_with
    told = capsys.readouterr()
    assert not re.search("^noise", told.out, re.MULTILINE)
    assert told.out.count(": ended seed=") == (0 if quiet else len(codes) - codes.count(2))
    assert told.err.count("error: ") == told.err.count(" with code 2 after ") == codes.count(2)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["noise\n"] * len(codes)


@pytest.mark.slow
def test_a_dry_run_prints_what_can_be_run():
    words = [
        "sweep",
        str(CONVERGENCE),
        "--dry-run",
        "--configuration",
        "rotary",
        "seed=9",
    ]
    shown = run_script(*words).stdout
    assert shown.count("\n") == 6 and all(line.endswith("seed=9") for line in shown.splitlines())
