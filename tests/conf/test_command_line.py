"""What a script makes of flags and mistakes, before it imports anything heavy."""

import os
import subprocess
import sys

import pytest
import yaml

from roformer.cli import (
    CONF,
    DIVERGED,
    InputError,
    compose,
    require_gpus,
)
from roformer.config.build import build
from roformer.config.composing import Composer
from roformer.pipelines.registry import get, load, pipelines
from tests.conftest import REPOSITORY

PIPELINES = [*pipelines()]

HEAVY = ("torch", "transformers", "accelerate", "datasets", "pandas", "pyarrow", "wandb", "plotly")


def script(name, *words, environment=None, folder=REPOSITORY):
    command = [sys.executable, str(REPOSITORY / "scripts" / f"{name}.py"), *words]
    settings = os.environ | (environment or {})
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)


def refused(name, *words, **settings):
    """Return the line that a mistake is told in."""
    done = script(name, *words, **settings)
    assert done.returncode == 2, done
    assert done.stdout == "" and done.stderr.count("\n") == 1, done
    return done.stderr


@pytest.mark.parametrize(
    "flags",
    [[], ["--cfg", "job"], ["--cfg", "all"], ["--cfg", "hydra"], ["--help"], ["-m", "seed=0,1"]],
    ids=" ".join,
)
def test_a_mistake_is_one_line_whatever_flag_stands_beside_it(flags):
    error = refused("pretrain", *flags, "training.step=5", "traning.foo=1", "training.steps=-5")
    assert "training.step: unknown key; valid keys here: steps" in error
    assert "traning: unknown key; valid keys here: training" in error
    assert "training.steps: Input should be greater than 0, not -5" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cfg", "job", "model=nope"], "model=nope: pretrain has no such option; choose one of"),
        (["-m", "seed=1", "model/position=none,nope"], "model/position=nope: pretrain has no such"),
        (["--info", "defaults", "modle/position=alibi"], "it has model/position, "),
        (["--cfg", "job", "task=mrpc"], "task=mrpc: pretrain has no config group task; it has"),
        (["-m", "training.steps=10,-1"], "training.steps: Input should be greater than 0, not -1"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["--cfg", "nope"], "invalid choice: 'nope'"),
        (["--cfg", "job", "-m"], "--multirun and --cfg do not go together"),
        (["-cd", "nowhere"], "--config-dir=nowhere is no folder"),
        (["--cfg", "job", "--package", "modle"], "--package=modle: there is nothing"),
        (["hydra.run.dir=elsewhere"], "set runtime.runs_dir"),
        (["runtime.runs_dir=LICENSE/x"], "runtime.runs_dir=LICENSE/x cannot be made"),
        (["runtime.cache_dir=/proc/nothing"], "runtime.cache_dir=/proc/nothing cannot be made"),
        (["training"], "training: what is set is written key=value or group=option"),
        (
            ["recipe=multi30k"],
            "has no such option; choose one of mini, paper, paper_tuned, paper_w",
        ),
        (["model.size.layers=0"], "model.size: Input should be a valid string, not {'layers': 0}"),
        (
            ["optimizer=sgd"],
            "optimizer=sgd is no section: set its keys, optimizer.",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_flags_and_groups_are_refused_in_a_line(words, message):
    assert message in refused("pretrain", *words)


ANSWERED = {
    "refused": ["training.step=5"],
    "help": ["--help"],
    "cfg": ["--cfg", "job"],
    "completion": ["-sc", "install=bash"],
}


@pytest.mark.parametrize("name", [*PIPELINES, "prepare", "plan"])
@pytest.mark.parametrize("case", ANSWERED)
def test_nothing_heavy_is_imported_to_answer(name, case):
    path = str(REPOSITORY / "scripts" / f"{name}.py")
    source = (
        f"import runpy, sys; sys.argv = {[path, *ANSWERED[case]]!r}\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: print('IMPORTED', *sys.modules)\n"
    )
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    imported = done.stdout.rpartition("IMPORTED")[2].split()
    assert done.returncode == (2 if case == "refused" else 0), done.stderr
    assert "hydra" in imported and not {*HEAVY} & {*imported}


def test_cfg_job_shows_all_keys_and_reads_back():
    shown = yaml.safe_load(script("pretrain", "--cfg", "job", "model/size=tiny").stdout)
    assert shown["model"]["layers"] == 2 and shown["model"]["init_std"] == 0.02
    assert shown["training"]["first_epoch"] == 0 and shown["schedule"]["total_steps"] is None
    part = script("pretrain", "--cfg", "job", "--package", "model.position").stdout
    assert part.startswith("# @package model.position\nkind: rotary\n")
    whole = yaml.safe_load(script("pretrain", "--cfg", "all").stdout)
    assert "hydra" in whole and whole["training"]["first_epoch"] == 0
    assert [*yaml.safe_load(script("pretrain", "--cfg", "hydra").stdout)] == ["hydra"]


def test_tab_completion_is_hydra_s_with_the_pipeline_s_recipes_alone():
    assert "hydra_bash_completion" in script("pretrain", "-sc", "install=bash").stdout
    line = {"COMP_LINE": "python scripts/scm.py recipe="}
    asked = script("scm", "-sc", "query=bash", environment=line).stdout.split()
    assert asked == ["recipe=mini", "recipe=paper", "recipe=real", "recipe=smoke"]


def test_own_options_are_found_in_a_folder_of_the_user_s(tmp_path):
    text = (CONF / "pipelines" / "pretrain" / "recipe" / "smoke.yaml").read_text()
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "own.yaml").write_text(text.replace("recipe: smoke", "recipe: own"))
    done = script("pretrain", "-cd", str(tmp_path), "recipe=own", "--cfg", "job")
    assert yaml.safe_load(done.stdout)["recipe"] == "own", done.stderr


def test_help_has_the_pipeline_s_own_options_and_every_key():
    shown = script("scm", "--help").stdout
    assert shown.startswith("Is A closer to B or to C?")
    recipes = next(line for line in shown.splitlines() if line.startswith("  recipe  "))
    assert recipes.split()[1:] == ["*mini,", "paper,", "real,", "smoke"]
    assert "accelerate" not in shown and "multi30k" not in shown and "powered by" not in shown
    assert "  training.batch_size  integer > 0 = " in shown
    assert "Examples:" in shown


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_pipeline_s_options_are_its_own_and_each_has_a_recipe_of_minutes(pipeline):
    listed = Composer(pipeline).options("recipe")
    own = {path.stem for path in (CONF / "pipelines" / pipeline / "recipe").glob("*.yaml")}
    assert own == {*listed} and {"smoke", "mini"} <= own
    for recipe in own:
        text = (CONF / "pipelines" / pipeline / "recipe" / f"{recipe}.yaml").read_text()
        assert f"\nrecipe: {recipe}\n" in text


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_refuses_a_precision_that_its_device_has_not(name):
    words = compose(name, ["recipe=smoke", "training.precision=fp16", "runtime.device=cpu"])
    with pytest.raises(InputError, match="fp16 needs a GPU"):
        build(load(get(name).config), words)


def test_gpus_that_are_not_there_are_refused(capsys):
    require_gpus(2, 2)
    with pytest.raises(SystemExit) as left:
        require_gpus(8, 0)
    error = capsys.readouterr().err
    assert left.value.code == 2 != DIVERGED and error.count("\n") == 1
    assert "8 GPUs are asked for and torch finds 0" in error


def test_accelerate_without_gpus_is_refused(tmp_path):
    launched = {"ACCELERATE_MIXED_PRECISION": "no", "LOCAL_WORLD_SIZE": "64", "LOCAL_RANK": "0"}
    error = refused("pretrain", environment=launched, folder=tmp_path)
    assert "64 GPUs are asked for" in error


def test_make_looks_for_gpus_before_it_launches():
    def shown(number):
        command = ["make", "-n", "pretrain", number]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True).stdout

    assert 0 <= shown("GPUS=64").find("require_gpus(64") < shown("GPUS=64").find("accelerate la")
    assert "require_gpus" not in shown("PROCESSES=2") and "torchrun" in shown("PROCESSES=2")
