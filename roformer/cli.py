"""The start of a training script: its config is checked, then Hydra does what its flags say.

Nothing heavy is imported before the config is complete, so that a mistake, `--help` and `--cfg` answer at
once.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from roformer import registry
from roformer.config.build import plain
from roformer.config.composing import Composer
from roformer.config.describe import describe
from roformer.errors import DIVERGED, InputError, one_line_errors
from roformer.script import QUIET, at_least, leave_on_signal, outlive_reader


def main(name: str) -> None:
    """Train with a pipeline of the registry, or do what the flags ask for instead; see `act`.

    Hydra's flags do what Hydra documents; two show more: `--help` the pipeline's own options and all
    keys, `--cfg job` the whole config with its defaults. `--quiet` is `runtime.progress=false`.

    Leaves with code 2 on a mistake in the input, 3 when the training diverged, 4 when another
    process of the run ended, 1 on a full or read-only disk, 143 on SIGTERM and 130 on Ctrl-C. A pipe
    that is closed at its other end stops nothing.
    """
    signal.signal(signal.SIGTERM, leave_on_signal)
    outlive_reader()
    with one_line_errors():
        run(registry.get(name))


def run(pipeline: registry.Pipeline) -> None:
    """Compose `conf/<pipeline>.yaml` with the command line, and do what the flags say."""
    arguments, parser = read_flags(sys.argv[1:], pipeline)
    script = Path(sys.argv[0]).resolve()
    if arguments.config_path and "://" not in arguments.config_path:
        arguments.config_path = str(script.parent / arguments.config_path)
    names = ("config_name", "config_path", "config_dir")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name)}
    composer = Composer(pipeline.name, **given)
    hydra = Hydra(script.stem, composer)
    GlobalHydra.instance().clear()
    GlobalHydra.instance().initialize(hydra)
    command: dict[str, Any] = {"config_name": composer.config_name}
    if arguments.shell_completion:
        hydra.shell_completion(overrides=arguments.overrides, **command)
        return
    if arguments.hydra_help:
        hydra.hydra_help(args_parser=parser, args=arguments, **command)
        return
    words = [*arguments.overrides, *(["runtime.progress=false"] if arguments.quiet else [])]
    multirun = arguments.multirun or "hydra.mode=MULTIRUN" in words
    words = [composer.open_key(word, multirun=multirun) for word in words]
    checked = []
    for job in composer.jobs(words) if multirun else [words]:  # before the first one is run
        config = composer.compose(job)
        HydraConfig.instance().set_config(config)  # for ${hydra:…}
        checked.append((config, composer.build(config)))
    config, built = checked[0]
    command["overrides"] = words
    if arguments.help:
        print(help_of(pipeline, composer, built, composer.groups(config), script))
    elif arguments.cfg:
        whole = OmegaConf.create({"hydra": config.hydra, **plain(built)})
        # Hydra would compose again, without the settings of the weights and without our defaults.
        hydra.compose_config = lambda **_: whole  # type: ignore[method-assign]
        hydra.show_cfg(
            cfg_type=arguments.cfg, package=arguments.package, resolve=arguments.resolve, **command
        )
    elif arguments.info:
        hydra.show_info(arguments.info, **command)
    elif arguments.multirun or config.hydra.mode == RunMode.MULTIRUN:
        words.append("hydra.mode=MULTIRUN")
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        hydra.multirun(task_function=lambda job: launch(script, flags, job), **command)
    else:
        OmegaConf.set_readonly(config.hydra, None)  # as before `HydraConfig` took it
        hydra.compose_config = lambda **_: config  # type: ignore[method-assign]
        hydra.run(task_function=lambda _: start(pipeline, built, arguments), **command)


def start(pipeline: registry.Pipeline, config: Any, arguments: argparse.Namespace) -> None:
    """Do the work of a command in this process."""
    with one_line_errors():
        check_machine(config)
        if config.runtime.tune_process and "OMP_WAIT_POLICY" not in os.environ:
            # Waiting threads spin for milliseconds: with two runs side by side on the core of the
            # thread that they wait for. libgomp reads this, in turns, when torch is loaded.
            os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        from roformer.training.distributed import leave_process_group
        from roformer.training.records import COMMAND

        os.environ[COMMAND] = shlex.join([os.path.relpath(sys.argv[0]), *sys.argv[1:]])
        act(pipeline, config, arguments)
    leave_process_group()


def act(pipeline: registry.Pipeline, config: Any, arguments: argparse.Namespace) -> None:
    """Train, or only prepare the data, or only print the cost."""
    if arguments.plan:
        pipeline.plan(config, arguments.devices, arguments.utilisation)
    elif arguments.prepare:
        assert pipeline.prepare is not None  # else it has no such flag
        print(pipeline.prepare(config).summary)
    else:
        from roformer.training.distributed import first_process

        began = time.time()
        folders = pipeline.train(config)
        if first_process():
            show_outcome(pipeline, config, folders, began)


def show_outcome(
    pipeline: registry.Pipeline, config: Any, folders: list[Path], began: float
) -> None:
    """Print the end of a command that `began` at a time: the metrics, and where its runs are."""
    shown = config.runtime.progress
    if not shown:
        from roformer.pipelines.run import outcome

        files = [file for folder in folders if (file := folder / "summary.json").is_file()]
        kept = sum(file.stat().st_mtime < began for file in files)
        count = f"{kept} of {len(folders)} " if kept < len(folders) else ""
        print(f"{count}already done: " if kept else "", outcome(pipeline, folders), sep="")
    if pipeline.several:
        from roformer.report.pages import tables_of
        from roformer.report.tables import end_with

        page = Path(config.runtime.runs_dir) / "report" / f"{pipeline.name}.md"
        end_with(tables_of(folders), page, shown=shown)
    elif not shown:
        print(f"run: {folders[0]}")


def read_flags(
    words: list[str], pipeline: registry.Pipeline
) -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    """Return Hydra's flags and the overrides, and the parser that reads them."""

    def refuse(message: str) -> NoReturn:
        advice = "keys are written without dashes, KEY=VALUE; --help lists them"
        raise InputError(f"{message}: {advice}, --hydra-help Hydra's flags")

    parser = get_args_parser()
    parser.add_argument("--quiet", action="store_true", help=QUIET)
    parser.add_argument("--prepare", action="store_true", help="only prepare the data")
    parser.add_argument("--plan", action="store_true", help="only print the cost of the training")
    parser.add_argument("--devices", type=at_least(1), default=1, help="of a plan")
    parser.add_argument(
        "--utilisation", type=float, default=0.4, help="of a plan: share of the peak"
    )
    parser.error = refuse  # type: ignore[method-assign]  # argparse prints its whole usage
    arguments = parser.parse_intermixed_args(words)
    commands = ("run", "multirun", "cfg", "info", "shell_completion", "prepare", "plan")
    given = [f"--{name.replace('_', '-')}" for name in commands if getattr(arguments, name)]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other: give one of them")
    if not 0 < arguments.utilisation <= 1:
        raise InputError(f"--utilisation={arguments.utilisation}: give a share above 0 and up to 1")
    for part in ("prepare", "plan"):
        if getattr(arguments, part) and part not in pipeline.flags:
            able = [name for name, other in registry.pipelines().items() if part in other.flags]
            raise InputError(f"{pipeline.name} has no --{part}: it exists for {', '.join(able)}")
    if arguments.resolve and not (arguments.cfg or arguments.help):
        raise InputError("--resolve needs --cfg: give both, or leave it out")
    return arguments, parser


def help_of(
    pipeline: registry.Pipeline,
    composer: Composer,
    config: Any,
    groups: dict[str, Any],
    script: Path,
) -> str:
    """Return what a pipeline does, its config groups with their options, its keys, and examples."""
    schema: Any = composer.schema
    command = f"python {os.path.relpath(script)}"
    about, lines = " ".join((schema.__doc__ or "").split()), []
    for group, chosen in sorted(groups.items()):
        mine = chosen if isinstance(chosen, list) else [chosen]
        listed = ", ".join(f"*{o}" if o in mine else o for o in composer.options(group))
        lines.append(f"  {group:<{max(map(len, groups))}}  {listed}")
    options, keys = "\n".join(lines), "\n".join(describe(schema, config))
    recipes = composer.options("recipe")
    smallest = "smoke" if "smoke" in recipes else recipes[0]
    several = f"\n  {command} --multirun model.hidden_dropout=0,0.1    # a run for each value"
    only = " --prepare (only the data)," if "prepare" in pipeline.flags else ""
    if "plan" in pipeline.flags:
        only += " --plan (only print the cost; --devices, --utilisation),"
    return f"""{about}

{command} [FLAG …] [GROUP=OPTION …] [KEY=VALUE …]

Config groups (* is chosen):
{options}

Keys with type, range, and the value that this command line gives:
{keys}

Examples:
  {command} recipe={smallest} tracker=none
  {command} training.precision=bf16 runtime.micro_batch_size=8
  {command} --cfg job recipe={smallest}    # the whole config, nothing is run{several}
  eval "$({command} -sc install=bash)"    # tab completion

Flags: --quiet ({QUIET}),{only}
--cfg job|hydra|all, --multirun, --config-dir FOLDER, --info; all: --hydra-help"""


def check_machine(config: Any) -> None:
    """Check that the folders are writable and that there are as many GPUs as processes that use them."""
    for key in ("runs_dir", "cache_dir"):
        folder = Path(getattr(config.runtime, key))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            problem = "" if os.access(folder, os.W_OK | os.X_OK) else "is not writable"
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            problem = f"cannot be made ({getattr(error, 'strerror', None) or error})"
        if problem:
            raise InputError(f"runtime.{key}={folder} {problem}: choose another folder")
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    through_accelerate = "ACCELERATE_MIXED_PRECISION" in os.environ
    on_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true")
    if processes > 1 and not on_cpu and config.runtime.device != "cpu":
        import torch

        first = os.environ.get("LOCAL_RANK", "0") == "0"
        # torchrun's processes are on the CPU only where there is no GPU at all.
        if through_accelerate or torch.cuda.is_available():
            require_gpus(processes, torch.accelerator.device_count(), shown=first)


def require_gpus(asked: int, there: int, *, shown: bool = True) -> None:
    """Exit with code 2 where more GPUs are requested than exist; `shown` prints a line about it."""
    if there >= asked:
        return
    if shown:
        print(
            f"error: {asked} GPUs are requested and torch finds {there} here: request fewer, or use "
            "processes on the CPU (make … PROCESSES=2 ARGS=runtime.device=cpu)",
            file=sys.stderr,
        )
    raise SystemExit(2)


def launch(script: Path, flags: list[str], config: DictConfig) -> None:
    """Run one job of a Hydra multirun in a separate process, through accelerate on several GPUs.

    A run that diverged has a record and does not end the sweep.
    """
    import torch

    from roformer.pipelines.grid import Job, command, run_jobs

    words = [sys.executable]
    on_gpus = OmegaConf.select(config, "runtime.device", default="auto") in ("auto", "cuda")
    if on_gpus and (gpus := torch.cuda.device_count()) > 1:
        words += ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1"]
        words += ["--num_processes", str(gpus), "--mixed_precision", "no"]
        words += ["--dynamo_backend", "no"]
    words += [str(script), *flags, *HydraConfig.get().overrides.task]

    def ended(job: Job) -> None:
        if job.code not in (0, DIVERGED):
            raise SystemExit(job.code)

    run_jobs([command("training", words, Path.cwd())], 1, ended)
