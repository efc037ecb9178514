"""The start of a training script: its config is checked, then Hydra does what its flags say.

Nothing heavy is imported before the config stands, so that a mistake, `--help` and `--cfg` answer at
once.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import Container, DictConfig, OmegaConf

from roformer.config.build import build
from roformer.config.composing import CONF as CONF
from roformer.config.composing import Composer, groups_of, without_hydra
from roformer.config.composing import compose as compose
from roformer.config.describe import describe, plain_in_full
from roformer.errors import DIVERGED as DIVERGED
from roformer.errors import InputError
from roformer.errors import one_line_errors as one_line_errors
from roformer.pipelines import registry
from roformer.script import leave_on_signal, outlive_reader

C = TypeVar("C")


def main(name: str) -> None:
    """Train with a pipeline of the registry, told by the command line; see `run`."""
    with one_line_errors():
        pipeline = registry.get(name)

    def train(config: Any) -> None:
        done = registry.train(pipeline, config)
        if pipeline.tell and os.environ.get("RANK", "0") == "0":
            print(registry.load(pipeline.tell)(done))

    run(name, registry.load(pipeline.config), train)


def main_of(part: Literal["prepare", "plan"]) -> None:
    """Prepare the data of the pipeline that `pipeline=` names, pretrain without one, or plan it."""
    with one_line_errors():
        pipeline = named_pipeline(sys.argv, part)
    schema, action = (part == "plan" and pipeline.plan) or (pipeline.config, pipeline.prepare)
    run(pipeline.name, registry.load(schema), lambda config: registry.load(action)(config))


def named_pipeline(words: list[str], part: str) -> registry.Pipeline:
    """Take `pipeline=` out of a command line; return its entry, that of pretrain without one.

    Raises:
        InputError: there is no such pipeline, or it has not this part; or it is to be done for the
            jobs of a multirun, which are trainings.
    """
    given = [word for word in words if word.startswith("pipeline=")]
    for word in given:
        words.remove(word)
    name = given[-1].partition("=")[2] if given else "pretrain"
    able = [name for name, pipeline in registry.pipelines().items() if getattr(pipeline, part)]
    if name not in able:
        raise InputError(
            f"pipeline={name} has no {part}: choose of {', '.join(able)} (glue and scm read "
            "their texts as the weights do that they start from)"
        )
    if {"-m", "--multirun"} & set(words):
        raise InputError(f"a {part} is of one config: leave --multirun out")
    return registry.get(name)


def run(pipeline: str, schema: type[C], action: Callable[[C], Any]) -> None:
    """Compose `conf/<pipeline>.yaml` with the command line and call `action` with the result.

    Hydra's flags do what Hydra documents; two show more: `--help` the pipeline's own options and all
    keys, `--cfg job` the whole config with its defaults.

    Leaves with code 2 on a mistake in the input, 3 when the training diverged, 4 when another
    process of the run ended, 1 on a full or read-only disk, 143 on SIGTERM and 130 on Ctrl-C. A pipe
    that is closed at its other end stops nothing.
    """
    signal.signal(signal.SIGTERM, leave_on_signal)
    outlive_reader()
    script, typed = Path(sys.argv[0]).resolve(), shlex.join(sys.argv[1:])
    typed = " ".join([shlex.quote(os.path.relpath(sys.argv[0])), typed]).strip()
    flags: list[str] = []
    with one_line_errors():
        home = str(registry.get(pipeline).conf or CONF)
        arguments = read_flags(sys.argv[1:])
        if not (arguments.shell_completion or arguments.hydra_help):
            if arguments.config_path and "://" not in arguments.config_path:
                arguments.config_path = str(script.parent / arguments.config_path)
            names = ("config_name", "config_path", "config_dir")
            composer = Composer(pipeline, **{name: getattr(arguments, name) for name in names})
            opened = [composer.open_key(word) for word in arguments.overrides]
            config = check(composer, schema, opened, multirun=arguments.multirun)
            if arguments.help:
                print(help_of(composer, schema, build(schema, without_hydra(config)), script))
                return
            if arguments.cfg in ("job", "all"):
                show(config, schema, arguments)
                return
            swap = dict(zip(arguments.overrides, opened, strict=True))
            sys.argv[1:] = [swap.get(word, word) for word in sys.argv[1:]]
            flags = folder_flags(arguments)
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # a bug keeps its whole traceback

    def main(config: DictConfig) -> None:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            launch(script, [*flags, *HydraConfig.get().overrides.task])
            return
        with one_line_errors():
            built = build(schema, config)
            check_machine(built)
            runtime = getattr(built, "runtime", None)
            if runtime is not None and runtime.tune_process:
                let_threads_sleep()
            from roformer.training.distributed import leave_process_group
            from roformer.training.records import COMMAND

            os.environ[COMMAND] = typed
            action(built)
        leave_process_group()

    with groups_of(pipeline, arguments.config_path):
        hydra.main(version_base="1.3", config_path=home, config_name=pipeline)(main)()


def let_threads_sleep() -> None:
    """Let OpenMP's threads sleep soon when they wait; libgomp reads it when torch is loaded.

    By default they spin for milliseconds: with two runs side by side a waiting thread takes the core
    of the thread that it waits for. A policy in the environment is kept.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # turns, tens of microseconds


# --- what was typed ------------------------------------------------------------------------------


def read_flags(words: list[str]) -> argparse.Namespace:
    """Return Hydra's flags and the overrides.

    Raises:
        InputError: an unknown flag, or flags that do not go together.
    """

    def refuse(message: str) -> NoReturn:
        raise InputError(f"{message}; --help lists what can be given, --hydra-help Hydra's flags")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]  # argparse prints its whole usage
    arguments = parser.parse_intermixed_args(words)
    commands = {
        "--run": arguments.run,
        "--multirun": arguments.multirun,
        "--cfg": arguments.cfg,
        "--info": arguments.info,
        "--shell-completion": arguments.shell_completion,
    }
    given = [flag for flag, value in commands.items() if value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} do not go together: give one of them")
    if arguments.resolve and not (arguments.cfg or arguments.help):
        raise InputError("--resolve is of --cfg: give both, or leave it out")
    return arguments


def folder_flags(arguments: argparse.Namespace) -> list[str]:
    """Return the flags that name config files, for the jobs of a multirun."""
    flags = {
        "--config-name": arguments.config_name,
        "--config-path": arguments.config_path,
        "--config-dir": arguments.config_dir and os.path.abspath(arguments.config_dir),
    }
    return [word for flag, value in flags.items() if value for word in (flag, value)]


def check(
    composer: Composer, schema: type[Any], overrides: list[str], *, multirun: bool
) -> DictConfig:
    """Return the composed config that the schema takes; of a multirun, that of its first job.

    Raises:
        InputError: see `Composer.compose` and `build`, of any job.
    """
    several = multirun or "hydra.mode=MULTIRUN" in overrides
    configs = []
    for job in composer.jobs(overrides) if several else [overrides]:
        configs.append(composer.compose(job))
        HydraConfig.instance().set_config(configs[-1])  # for ${hydra:…}
        build(schema, without_hydra(configs[-1].copy()))
    return configs[0]


# --- what is only shown --------------------------------------------------------------------------


def show(config: DictConfig, schema: type[Any], arguments: argparse.Namespace) -> None:
    """Print the config of a run, `--cfg job`, or with Hydra's part, `--cfg all`, as Hydra does.

    Raises:
        InputError: `--package` names nothing of it.
    """
    hydra_part = config.hydra
    content: Any = OmegaConf.create(plain_in_full(build(schema, without_hydra(config))))
    if arguments.cfg == "all":
        content = OmegaConf.create({"hydra": hydra_part, **content})
    package = arguments.package if arguments.package != "_global_" else None
    if package:
        content = OmegaConf.select(content, package)
        if content is None:
            raise InputError(f"--package={package}: there is nothing of this name in the config")
    if not isinstance(content, Container):
        print(content)
        return
    if arguments.resolve:
        OmegaConf.resolve(content)
    print(f"# @package {package}\n" if package else "", OmegaConf.to_yaml(content), sep="", end="")


def help_of(composer: Composer, schema: type[Any], config: Any, script: Path) -> str:
    """Return what a pipeline does, its config groups with their options, its keys, and examples."""
    command = f"python {os.path.relpath(script)}"
    groups = composer.groups()
    width = max(map(len, groups))
    about = " ".join((schema.__doc__ or "").split())
    lines = []
    for group, chosen in sorted(groups.items()):
        mine = chosen if isinstance(chosen, list) else [chosen]
        listed = ", ".join(f"*{o}" if o in mine else o for o in composer.options(group))
        lines.append(f"  {group:<{width}}  {listed}")
    options = "\n".join(lines)
    recipes = composer.options("recipe")
    smallest = "smoke" if "smoke" in recipes else recipes[0]
    return f"""{about}

{command} [FLAG …] [GROUP=OPTION …] [KEY=VALUE …]

Config groups (* is the default):
{options}

Keys with type, range, and the value that this command line gives:
{describe(schema, config)}

Examples:
  {command} recipe={smallest} tracker=none
  {command} training.precision=bf16 runtime.micro_batch_size=8
  {command} --cfg job recipe={smallest}    # the whole config, nothing is run
  {command} --multirun model.hidden_dropout=0,0.1    # a run for each value
  eval "$({command} -sc install=bash)"    # tab completion

Flags: --cfg job|hydra|all, --multirun, --config-dir FOLDER, --info; all: --hydra-help"""


# --- what is run ---------------------------------------------------------------------------------


def check_machine(config: Any) -> None:
    """Tell what this machine lacks for a run, before anything heavy is imported.

    Raises:
        InputError: a folder that cannot be made or written to; fewer GPUs than accelerate started
            processes for, which would compute on the CPU.
    """
    for key in ("runs_dir", "cache_dir"):
        folder = Path(getattr(config.runtime, key))
        if problem := unusable(folder):
            raise InputError(f"runtime.{key}={folder} {problem}: choose another folder")
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    through_accelerate = "ACCELERATE_MIXED_PRECISION" in os.environ
    on_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true")
    if processes > 1 and through_accelerate and not on_cpu and config.runtime.device != "cpu":
        import torch

        rank = os.environ.get("LOCAL_RANK", "0")
        require_gpus(processes, torch.accelerator.device_count(), tell=rank == "0")


def require_gpus(asked: int, there: int, *, tell: bool = True) -> None:
    """Leave with code 2 where more GPUs are asked for than there are; `tell` says so, in a line."""
    if there >= asked:
        return
    if tell:
        print(
            f"error: {asked} GPUs are asked for and torch finds {there} here: ask for fewer, or for "
            "processes on the CPU (make … PROCESSES=2)",
            file=sys.stderr,
        )
    raise SystemExit(2)


def unusable(folder: Path) -> str | None:
    """Make a folder; return why it can't be made or written to, None where it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        return f"cannot be made ({getattr(error, 'strerror', None) or error})"
    return None if os.access(folder, os.W_OK | os.X_OK) else "is not writable"


def launch(script: Path, words: list[str]) -> None:
    """Run one job of a Hydra multirun in a process of its own, through accelerate on several GPUs.

    So jobs share no state, wherever Hydra's launcher starts them: here or on SLURM.

    Raises:
        SystemExit: the job failed; one that diverged is recorded so and does not end the sweep.
    """
    import torch

    command = [sys.executable]
    if (gpus := torch.cuda.device_count()) > 1:
        command += ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1"]
        command += ["--num_processes", str(gpus), "--mixed_precision", "no"]
        command += ["--dynamo_backend", "no"]
    done = subprocess.run([*command, str(script), *words], cwd=Path.cwd())
    if done.returncode not in (0, DIVERGED):
        raise SystemExit(done.returncode)
