"""The driver of studies: which commands, and what becomes of runs that fail."""

import json
import re
import shlex
import sys

import pytest

from roformer.errors import InputError
from roformer.report.runs import RecordError
from roformer.report.studies import read_study
from scripts.sweep import commands_of, main, outcome, sweep
from tests.conftest import REPOSITORY
from tests.recorded_runs import folder_of
from tests.scripts import run_script

CONVERGENCE = folder_of("convergence")


def test_seeds_go_outermost_so_that_a_cut_study_is_balanced():
    commands = commands_of(read_study(CONVERGENCE), [])
    seeds = [seed for seed in range(3) for _ in range(4)] + [3, 3, 4, 4, 5, 5]
    assert [words[-1] for _, words in commands] == [f"seed={seed}" for seed in seeds]
    assert all(words[:2] == ["python", "scripts/pretrain.py"] for _, words in commands)


def test_seeds_that_came_later_are_run_alone():
    study = read_study(CONVERGENCE)
    models = {"rotary": "roformer", "learned": "bert"}
    assert [(name, *words[-2:]) for name, words in commands_of(study, [], [5, 3])] == [
        (name, f"model={model}", f"seed={seed}")
        for seed in (3, 5)
        for name, model in models.items()
    ]
    with pytest.raises(RecordError, match="has no run of seed 3 there: see --dry-run"):
        commands_of(study, ["none"], [3])


def test_a_grid_takes_all_seeds_in_one_command():
    ((name, words),) = commands_of(read_study(CONVERGENCE.with_name("glue_real")), ["learned"])
    assert name == "learned" and words[-1] == "seed=[0,1,2,3,4]" and "model=bert" in words


def test_grids_come_after_the_runs_that_they_may_begin_with():
    study = read_study(CONVERGENCE.with_name("glue_builtin_bert"))
    for seeds in ((), (0,)):
        assert [words[1] for _, words in commands_of(study, [], seeds)] == [
            "scripts/pretrain.py",
            *["scripts/glue.py"] * 2,
        ]


@pytest.mark.parametrize(
    ("study", "names", "message"),
    [
        ("convergence", ["x"], "no configuration x: choose one of rotary"),
        ("decay", [], "has no runs of its own"),
    ],
)
def test_what_is_not_there_is_one_line(study, names, message):
    with pytest.raises(RecordError, match=message):
        commands_of(read_study(folder_of(study)), names)


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize(("codes", "left_with"), [([3, 0], None), ([0, 2, 3], 2)])
def test_failed_runs_are_named_and_diverged_ones_counted(
    codes, left_with, quiet, tmp_path, capsys, monkeypatch
):
    """Quiet or not; what the commands print is in files, a line about each is on the terminal."""
    monkeypatch.setattr("scripts.sweep.outcome", lambda words: f"ended {words[-1]}")
    commands = [
        ("rotary", ["python", "-c", f"print('noise'); raise SystemExit({code})", f"seed={number}"])
        for number, code in enumerate(codes)
    ]
    if left_with is None:
        assert sweep(commands, 1, tmp_path, quiet=quiet) == 1
    else:
        with pytest.raises(SystemExit) as raised:
            sweep(commands, 2, tmp_path, quiet=quiet)
        assert raised.value.code == left_with
    printed = capsys.readouterr()
    assert not re.search("^noise", printed.out, re.MULTILINE)
    assert printed.out.count(": ended seed=") == (0 if quiet else len(codes) - codes.count(2))
    assert (
        printed.err.count("error: ") == printed.err.count(" with code 2 after ") == codes.count(2)
    )
    assert [file.read_text() for file in tmp_path.iterdir()] == ["noise\n"] * len(codes)


def test_a_dry_run_prints_commands_that_can_be_run(tmp_path, monkeypatch, capsys):
    """From any folder: they use this interpreter and the scripts' location; overrides come last."""
    monkeypatch.chdir(tmp_path)
    words = [CONVERGENCE, "--dry-run", "--configuration", "rotary", "seed=9", "tracker=none"]
    monkeypatch.setattr(sys, "argv", ["sweep.py", *map(str, words)])
    main.__wrapped__()
    place, *lines = capsys.readouterr().out.splitlines()
    assert place == f"cd {REPOSITORY}" and len(lines) == 6
    for line in lines:
        python, script, *overrides = shlex.split(line)
        assert python == sys.executable and (REPOSITORY / script).is_file()
        assert overrides[-2:] == ["seed=9", "tracker=none"]


def test_a_dry_run_has_the_modules_of_the_study():
    """A shell takes the quoted variables, too."""
    words = [folder_of("rotary_start"), "--dry-run", "--configuration", "rotary_centred"]
    start = shlex.split(run_script("sweep", *words).stdout.splitlines()[0])[:3]
    assert start[:2] == ["env", "ROFORMER_EXTENSIONS=experiments.rotary_start.encodings"]
    assert start[2].startswith(f"PYTHONPATH={REPOSITORY}")


def test_a_mistake_in_a_study_stops_it_before_the_first_run(tmp_path, monkeypatch, capsys):
    (study := tmp_path / "mine").mkdir()
    plan = {"title": "t", "scale": "", "pipeline": "pretrain", "seeds": [0]}

    def write(b):
        configurations = {"a": {"overrides": []}, "b": {"overrides": [b]}}
        (study / "study.yaml").write_text(json.dumps(plan | {"configurations": configurations}))

    write("training.stepz=5")
    monkeypatch.setattr(sys, "argv", ["sweep.py", str(study)])
    with pytest.raises(InputError, match=r"/PLAN\.md is missing: write the plan before the runs$"):
        main.__wrapped__()
    (study / "PLAN.md").write_text("A plan.\n")
    with pytest.raises(InputError, match=r"mine, configuration b: training\.stepz: unknown key"):
        main.__wrapped__()
    write("training.steps=5")
    with pytest.raises(RecordError, match=r"mine: a and b differ in training\.steps, which is not"):
        main.__wrapped__()
    assert capsys.readouterr().out == ""


def test_a_run_whose_id_is_known_only_when_its_weights_are_opened_has_ended(tmp_path):
    """The others of its study go on."""
    words = ["recipe=smoke", "init_from=runs/pretrain/some", f"runtime.runs_dir={tmp_path}"]
    assert outcome(["python", "scripts/scm.py", *words, "seed=0"]) == "ended"
