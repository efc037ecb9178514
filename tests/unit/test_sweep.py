"""The driver of studies: which commands, and what becomes of runs that fail."""

import os
import subprocess
import sys

import pytest

from roformer.report.runs import RecordError
from roformer.report.studies import read_study
from scripts.sweep import commands_of, sweep
from tests.conftest import REPOSITORY

CONVERGENCE = REPOSITORY / "experiments" / "convergence"


def python(code):
    return ["python", "-c", code]


def test_seeds_go_outermost_so_that_a_cut_study_is_balanced():
    words = commands_of(read_study(CONVERGENCE), [])
    assert [command[-1] for command in words] == [f"seed={s}" for s in (0, 1, 2) for _ in range(4)]
    assert all(command[:2] == ["python", "scripts/pretrain.py"] for command in words)


def test_a_grid_takes_all_seeds_in_one_command():
    words = commands_of(read_study(CONVERGENCE.with_name("glue_real")), ["learned"])
    assert len(words) == 1 and words[0][-1] == "seed=[0,1,2,3,4]" and "model=bert" in words[0]


@pytest.mark.parametrize(
    ("study", "arms", "message"),
    [("convergence", ["x"], "no arm x: choose of rotary"), ("decay", [], "has no runs of its own")],
)
def test_what_is_not_there_is_one_line(study, arms, message):
    with pytest.raises(RecordError, match=message):
        commands_of(read_study(CONVERGENCE.with_name(study)), arms)


def test_diverged_runs_are_counted_and_do_not_end_it(tmp_path, capsys):
    late = python(f"open({str(tmp_path / 'late')!r}, 'w')")
    assert sweep([python("raise SystemExit(3)"), late], jobs=1) == 1
    assert (tmp_path / "late").is_file()
    assert capsys.readouterr().out.startswith("[1/2] python -c ")


def test_a_failed_run_ends_it_and_those_beside_it(tmp_path):
    """Nothing is begun after it, and no process is left behind."""
    place = tmp_path / "pid"
    sleep = python(
        f"import os, time; open({str(place)!r}, 'w').write(str(os.getpid())); time.sleep(99)"
    )
    fail = python(
        f"import os, time\np = {str(place)!r}\n"
        "while not (os.path.exists(p) and os.path.getsize(p)): time.sleep(0.1)\nexit(2)"
    )
    late = python(f"open({str(tmp_path / 'late')!r}, 'w')")
    with pytest.raises(SystemExit) as raised:
        sweep([sleep, fail, late], jobs=2)
    assert raised.value.code == 2 and not (tmp_path / "late").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(place.read_text()), 0)


def test_a_dry_run_prints_what_can_be_run():
    done = subprocess.run(
        [sys.executable, "scripts/sweep.py", str(CONVERGENCE), "--dry-run", "seed=9"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.count("\n") == 12
    assert all(line.endswith(" seed=9") for line in done.stdout.splitlines())
