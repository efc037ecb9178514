"""How a script starts: Hydra composes, the schema checks, mistakes are told in one line."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

import roformer.openmp  # noqa: F401  before what imports torch
from roformer.config.build import build
from roformer.errors import Diverged, InputError, PeerLost
from roformer.stdout import outlive_reader
from roformer.training.process import leave_process_group
from roformer.training.records import COMMAND

C = TypeVar("C")
CONF = Path(__file__).resolve().parents[1] / "conf"
DIVERGED = 3
"""Exit code of a training whose loss became infinite."""
PEER_LOST = 4
"""Exit code of a process that another one of its run left alone."""
REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EROFS: "make it writable or choose another folder",
    errno.EACCES: "allow it or choose another folder",
    errno.EPERM: "allow it or choose another folder",
}
"""What to do about a system's error."""


def run(config_name: str, schema: type[C], action: Callable[[C], Any]) -> None:
    """Compose `conf/<config_name>.yaml` with the command line and call `action` with the result.

    Leaves with code 2 on a mistake in the input, 3 when the training diverged, 4 when another
    process of the run ended, 1 on a full or read-only disk, 143 on SIGTERM and 130 on Ctrl-C. A pipe
    that is closed at its other end stops nothing.
    """
    signal.signal(signal.SIGTERM, leave_on_signal)
    outlive_reader()
    os.environ[COMMAND] = shlex.join([os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    with one_line_errors():
        arguments = [open_key(argument) for argument in sys.argv[1:]]
    sys.argv[1:] = arguments
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # a bug keeps its whole traceback

    def main(config: DictConfig) -> None:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            launch(config_name, list(HydraConfig.get().overrides.task))
            return
        with one_line_errors():
            action(build(schema, config))
        leave_process_group()

    if not any(argument.startswith("-") for argument in arguments):
        with one_line_errors():
            compose(config_name, arguments)
    hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(main)()


def leave_on_signal(number: int, frame: FrameType | None) -> None:
    """End in order, as Ctrl-C does; the training loop has a handler of its own that saves first."""
    print("stopped by SIGTERM: start the same command again to go on", file=sys.stderr)
    raise SystemExit(128 + number)


def launch(config_name: str, overrides: list[str]) -> None:
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
    script = CONF.parent / "scripts" / f"{config_name}.py"
    done = subprocess.run([*command, str(script), *overrides], cwd=Path.cwd())
    if done.returncode not in (0, DIVERGED):
        raise SystemExit(done.returncode)


def compose(config_name: str, overrides: list[str]) -> DictConfig:
    """Return the composed config.

    Raises:
        InputError: an unknown group or option (the valid ones are listed), or a malformed override.
    """
    OmegaConf.clear_resolvers()
    outer = GlobalHydra.instance().hydra  # of the script that is running, if one is
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
            return hydra.compose(config_name, overrides=[open_key(o) for o in overrides])
    except HydraException as error:
        message, _, _ = str(error).partition("Config search path")
        # Of several options of a group, Hydra names the one that is not there but not the others.
        if found := re.search(r"Could not load '([\w/]+)/[^/']*'", message):
            message += f" Available options in '{found[1]}': {' '.join(options(found[1]))}"
        raise InputError(" ".join(message.split())) from error
    finally:
        GlobalHydra.instance().hydra = outer


def options(group: str) -> list[str]:
    """Return the options of a config group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def open_key(override: str) -> str:
    """Turn `key=value` into Hydra's `++key=value`, unless the key is a config group.

    Keys with a default in the schema need not stand in any YAML file, and Hydra would refuse them;
    the strict rebuild refuses unknown ones, with the list of valid keys.

    Raises:
        InputError: a group written with dots, which would change its label and nothing else.
    """
    key, equals, value = override.partition("=")
    group = key.lstrip("+~").replace(".", "/")
    if equals and "/" in group and group not in override and (CONF / group).is_dir():
        listed = ", ".join(options(group))
        raise InputError(f"{key} is chosen whole: write {group}={value}, one of {listed}")
    if not equals or not key[:1].isalpha() or key.startswith("hydra") or (CONF / key).is_dir():
        return override
    if "/" in key:  # a group that does not exist: Hydra says so
        return override
    return f"++{override}"


class one_line_errors:
    """Turn a mistake of the user's or the disk's into one line and an exit code."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InputError):
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        if isinstance(error, Diverged):
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(DIVERGED) from None
        if isinstance(error, PeerLost):
            print(f"error: {error}", file=sys.stderr, flush=True)
            os._exit(PEER_LOST)  # what is left of the process group would be waited for
        if isinstance(error, KeyboardInterrupt):
            print("stopped by Ctrl-C: start the same command again to go on", file=sys.stderr)
            raise SystemExit(128 + signal.SIGINT) from None
        if isinstance(error, OSError) and error.errno in REMEDIES:
            where = f" while writing {error.filename}" if error.filename else ""
            print(
                f"error: {error.strerror}{where}: {REMEDIES[error.errno]} and start the same "
                "command again; earlier checkpoints are intact",
                file=sys.stderr,
            )
            raise SystemExit(1) from None
