"""Flags and mistakes of a script, handled before it imports anything heavy."""

import errno
import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from omegaconf import OmegaConf

from roformer import cli
from roformer.config.composing import CONF, compose
from roformer.errors import Diverged, InputError, ProcessLost, one_line_errors
from roformer.registry import get, pipelines
from roformer.script import Arguments
from tests.conf.composed import config
from tests.conftest import REPOSITORY
from tests.trained import run_of, stored

HEAVY = ("torch", "transformers", "accelerate", "datasets", "pandas", "pyarrow", "wandb", "plotly")


@pytest.fixture
def answer(monkeypatch, capsys):
    """Return a function that calls a script: (exit code, standard output, standard error)."""

    def call(name, *words):
        path = REPOSITORY / "scripts" / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *words])
        code = 0
        try:
            cli.main(name)
        except SystemExit as left:
            code = left.code
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("a"), 2, "error: a"),
        (Diverged("a"), 3, "error: a"),
        (ProcessLost("a"), 4, "error: a"),
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C: "),
        (PermissionError(errno.EACCES, "no", "f"), 1, "error: no while writing f: allow it"),
    ],
)
def test_a_fault_has_its_code(error, code, line, monkeypatch, capsys):
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as left, one_line_errors():
        raise error
    told = capsys.readouterr().err
    assert left.value.code == code and told.startswith(line) and told.count("\n") == 1


@pytest.mark.parametrize(("device", "processes"), [("cpu", 0), ("auto", 3), ("cuda", 3)])
def test_a_multirun_has_a_process_per_gpu_on_gpus_only(device, processes, monkeypatch):
    job = SimpleNamespace(overrides=SimpleNamespace(task=["seed=1"]))
    monkeypatch.setattr(cli, "HydraConfig", SimpleNamespace(get=lambda: job))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    started = []
    ended = SimpleNamespace(poll=lambda: 0)
    popen = "roformer.pipelines.grid.subprocess.Popen"
    monkeypatch.setattr(popen, lambda words, **_: started.append(words) or ended)
    cli.launch(Path("train.py"), [], OmegaConf.create({"runtime": {"device": device}}))
    (words,) = started
    assert words[-2:] == ["train.py", "seed=1"]
    launched = words.index("--num_processes") if "--num_processes" in words else None
    assert (int(words[launched + 1]) if launched else 0) == processes


def test_a_device_that_is_not_here_is_one_line():
    assert Arguments(None, device=True).parse_args(["--device", "cpu"]).device == "cpu"
    with pytest.raises(InputError, match="gpu0 is no device of this machine"):
        Arguments(None, device=True).parse_args(["--device", "gpu0"])


MISTAKES = [
    (
        "-m seed=1 model/position=none,nope",
        "model/position=nope: no such option; choose one of none, alibi",
    ),
    ("-m training.steps=10,-1", "training.steps: Input should be greater than 0, not -1"),
    (
        "--info defaults modle/position=alibi",
        "modle/position: pretrain has no such config group; it has model/position, ",
    ),
    ("--help training.step=5 seed=-1", "training.step: unknown key; valid keys here: steps"),
    ("--steps 3", "unrecognized arguments: --steps: keys are written without dashes, KEY=VALUE;"),
    ("--cfg nope", "invalid choice: 'nope'"),
    ("--cfg job -m", "--multirun and --cfg exclude each other"),
    ("-cd nowhere", "--config-dir=nowhere is no folder"),
    ("hydra.run.dir=elsewhere", "set runtime.runs_dir"),
    (f"runtime.runs_dir={CONF}/pretrain.yaml/x", "pretrain.yaml/x cannot be made"),
    ("training", "training: write key=value or group=option"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=lambda value: value[:40])
def test_a_mistake_is_one_line_whatever_flag_stands_beside_it(answer, words, message):
    code, output, error = answer("pretrain", *words.split())
    assert (code, output) == (2, "") and error.count("\n") == 1 and message in error


def test_a_quiet_command_says_what_was_done_before_it(tmp_path, capsys):
    """And prints the metrics of a run that is made anew without a note."""
    (folder := tmp_path / "pretrain" / "x").mkdir(parents=True)
    summary = {"metrics": {"valid/mlm_loss": 2.5}, "status": "done", "run_id": "x"}
    (folder / "summary.json").write_text(json.dumps(summary))
    quiet = config(f"runtime.progress=false runtime.runs_dir={tmp_path}")
    written = (folder / "summary.json").stat().st_mtime
    for began, note in ((written + 1, "already done: "), (written - 1, "")):
        cli.show_outcome(get("pretrain"), quiet, [folder], began)
        assert capsys.readouterr().out == f"{note}valid/mlm_loss 2.500\nrun: {folder}\n"
    cli.show_outcome(get("pretrain"), quiet, [folder, tmp_path], written + 1)
    assert capsys.readouterr().out.startswith("1 of 2 already done: ")


ANSWERED = [["training.step=5"], ["--help"], ["--cfg", "job"], ["-sc", "install=bash"]]
IMPORTS = """
import contextlib, io, runpy, sys
for path in {paths!r}:
    for words in {words!r} if path == {paths!r}[0] else [["--help"]]:
        sys.argv = [path, *words]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            with contextlib.suppress(SystemExit):
                runpy.run_path(path, run_name="__main__")
        heavy = {{*{heavy!r}}} & {{*sys.modules}}
        assert "hydra" in sys.modules and not heavy, (path, words, heavy)
"""


def test_nothing_heavy_is_imported_to_answer():
    names = pipelines()
    paths = [str(REPOSITORY / "scripts" / f"{name}.py") for name in names]
    source = IMPORTS.format(paths=paths, words=ANSWERED, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_cfg_job_shows_all_keys_and_reads_back(answer):
    _, shown, _ = answer("pretrain", "--cfg", "job", "model/size=tiny")
    shown = yaml.safe_load(shown)
    assert shown["model"]["layers"] == 2 and shown["model"]["init_std"] == 0.02
    assert shown["training"]["first_epoch"] == 0 and shown["schedule"]["total_steps"] is None
    _, part, _ = answer("pretrain", "--cfg", "job", "--package", "model.position")
    assert part.startswith("# @package model.position\nkind: rotary\n")
    whole = yaml.safe_load(answer("pretrain", "--cfg", "all")[1])
    assert "hydra" in whole and whole["training"]["first_epoch"] == 0
    assert [*yaml.safe_load(answer("pretrain", "--cfg", "hydra")[1])] == ["hydra"]


def test_every_flag_shows_the_settings_of_the_weights(answer, tmp_path):
    run = run_of(tmp_path / "run", stored(hidden_size=48))
    for flag in ("--cfg", "--info"):
        kind = "job" if flag == "--cfg" else "config"
        code, shown, _ = answer("pretrain", flag, kind, "recipe=smoke", f"init_from={run}")
        assert code == 0 and "hidden_size: 48" in shown


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("model=bert", "^model=bert: init_from=.* was trained with roformer: remove this"),
        ("model/position=alibi", "^model/position=alibi: .* with rotary: .*make convert"),
        ("model/size=tiny", "^model/size=tiny: .* with layers=.* weights$"),
        ("model.position.base=500", "^model.position.base=500: .* with 10000"),
        ("model=roformer", None),
        ("model.hidden_dropout=0.3", None),
        ("model=bert init_from=scratch", None),
    ],
)
def test_a_model_typed_for_a_fine_tuning_is_that_of_its_weights(tmp_path, word, message):
    run = run_of(tmp_path / "run", stored(hidden_size=48))
    expected = pytest.raises(InputError, match=message) if message else nullcontext()
    with expected:
        compose("glue", ["recipe=smoke", f"init_from={run}", *word.split()])


def test_a_conversion_keeps_the_model_of_its_weights(tmp_path):
    run = run_of(tmp_path / "run", stored(hidden_size=48))
    words = ["recipe=smoke", f"init_from={run}", "model/position=learned"]
    assert compose("convert", words).model.position.kind == "learned"
    with pytest.raises(
        InputError, match=r"^model=bert: a conversion takes its model from the weights"
    ):
        compose("convert", [*words, "model=bert"])


def test_tab_completion_is_hydra_s_with_the_pipeline_s_recipes_alone(answer, monkeypatch):
    assert "hydra_bash_completion" in answer("pretrain", "-sc", "install=bash")[1]
    monkeypatch.setenv("COMP_LINE", "python scripts/scm.py recipe=")
    asked = answer("scm", "-sc", "query=bash")[1].split()
    assert asked == ["recipe=mini", "recipe=paper", "recipe=real", "recipe=smoke"]


def test_own_options_are_found_in_a_folder_of_the_user_s(answer, tmp_path):
    text = (CONF / "pipelines" / "pretrain" / "recipe" / "smoke.yaml").read_text()
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "own.yaml").write_text(text.replace("recipe: smoke", "recipe: own"))
    _, shown, error = answer("pretrain", "-cd", str(tmp_path), "recipe=own", "--cfg", "job")
    assert yaml.safe_load(shown)["recipe"] == "own", error


def test_help_has_the_pipeline_s_own_options_and_every_key(answer):
    _, shown, _ = answer("scm", "--help")
    assert shown.startswith("Is A closer to B or to C?")
    recipes = next(line for line in shown.splitlines() if line.startswith("  recipe  "))
    assert recipes.split()[1:] == ["*mini,", "paper,", "real,", "smoke"]
    assert "accelerate" not in shown and "multi30k" not in shown and "powered by" not in shown
    assert "  training.batch_size  integer > 0 = " in shown and "Examples:" in shown
    assert "\n      Pinned revision of a Hub id.\n" in shown  # the docstring below the field
    assert "--plan" not in shown
    shown = answer("wmt", "--help")[1]
    assert "--prepare (" in shown and "--plan (" in shown and "--multirun model" in shown


def test_a_flag_that_cannot_be_is_one_line(answer):
    code, _, error = answer("glue", "--prepare")
    assert code == 2 and "glue has no --prepare: it exists for pretrain, stages" in error
    assert "exclude each other" in answer("wmt", "-m", "--plan", "seed=1,2")[2]
    assert "give a share" in answer("wmt", "--plan", "--utilisation=2")[2]


def test_the_help_of_a_script_tells_defaults_that_are_something(capsys):
    parser = Arguments("About.")
    parser.add_argument("--top", type=int, default=0, help="the best")
    parser.add_argument("--seed", action="append", default=[], help="one alone")
    parser.print_help()
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[-2:] == ["--top TOP the best; default: 0", "--seed SEED one alone"]


def test_more_processes_than_gpus_are_refused(tmp_path, monkeypatch, capsys):
    """Two processes on one GPU end in an error of NCCL's; torchrun's may all be on the CPU."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    folders = f"runtime.runs_dir={tmp_path} runtime.cache_dir={tmp_path}"
    cli.check_machine(config(folders))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cli.check_machine(config(f"{folders} runtime.device=cpu"))
    with pytest.raises(SystemExit) as left:
        cli.check_machine(config(folders))
    error = capsys.readouterr().err
    assert left.value.code == 2 and error.count("\n") == 1
    assert "2 GPUs are requested and torch finds 1" in error
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")  # accelerate's are on the CPU in silence
    with pytest.raises(SystemExit):
        cli.check_machine(config(folders))


def make(*words):
    """Return what `make -n` prints in an environment that is set up."""
    command = ["make", "-n", "--no-print-directory", "-o", ".venv/.complete", *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


def test_make_looks_for_gpus_before_it_launches():
    on_gpus, on_cpu = make("pretrain", "GPUS=64").stdout, make("pretrain", "PROCESSES=2").stdout
    assert 0 <= on_gpus.find("require_gpus(64") < on_gpus.find("accelerate la")
    assert "require_gpus" not in on_cpu and "torchrun" in on_cpu


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pretrain GPUS=two", "GPUS=two is no number: give one, GPUS=2"),
        (
            "plan PIPELINE=nothing",
            "make plan has no PIPELINE=nothing: choose one of pretrain stages ",
        ),
        ("sweep", "make sweep needs STUDY: add STUDY=experiments/"),
        ("convert-layout RUN=x", 'needs ARGS: add ARGS="--to half --output FOLDER"'),
        ("pretrain recipe=smoke", "make pretrain does not read recipe: write RECIPE=smoke."),
        ("pretrain gpu=8", "does not read gpu: write GPUS=8."),
        ("pretrain model/position=none", 'write ARGS="model/position=none".'),
        ("scm MODEL=bert", "does not read MODEL: it reads ARGS GPUS PRESET PROCESSES RECIPE."),
        ("compare RUN=x", "does not read RUN: write RUNS=x."),
        ("wmt HF_HOME=/x", "a variable of the environment goes before make."),
    ],
)
def test_make_refuses_what_it_cannot_pass_on_in_one_line(words, message):
    done = make(*words.split())
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and message in done.stderr


@pytest.mark.parametrize("part", ["plan", "prepare"])
def test_make_knows_the_pipelines_that_have_a_plan_or_prepare_data(part):
    makefile = (REPOSITORY / "Makefile").read_text()
    known = re.search(rf"one_of,PIPELINE,([a-z ]+)\)\.py --{part} ", makefile)[1].split()
    assert known == [name for name, one in pipelines().items() if part in one.flags]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["export", "RUN=a b (1)"], r"export.py a\ b\ \(1\)"),
        (["convert", "FROM=~/a b"], r"convert.py init_from=~/a\ b recipe=mini"),
        (["predict", "RUN='a b'"], "predict.py 'a b'"),
        (["glue-submission", "RUNS=a b", "ARGS=--flag 3"], "glue_submission.py a b --flag 3"),
    ],
)
def test_make_passes_paths_and_arguments_on(words, shown):
    assert make(*words).stdout.strip().endswith(f"scripts/{shown}")
