"""How a script starts: Hydra composes, the schema checks, mistakes are told in one line."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from roformer.config.build import build
from roformer.errors import Diverged, InputError
from roformer.training.records import COMMAND

C = TypeVar("C")
CONF = Path(__file__).resolve().parents[1] / "conf"


def run(config_name: str, schema: type[C], action: Callable[[C], Any]) -> None:
    """Compose `conf/<config_name>.yaml` with the command line and call `action` with the result.

    Leaves with code 2 on a mistake in the input, 3 when the training diverged, 1 on a full or
    read-only disk.
    """
    os.environ[COMMAND] = shlex.join([os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    with one_line_errors():
        arguments = [open_key(argument) for argument in sys.argv[1:]]
    sys.argv[1:] = arguments
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # a bug keeps its whole traceback

    def main(config: DictConfig) -> None:
        with one_line_errors():
            action(build(schema, config))

    if not any(argument.startswith("-") for argument in arguments):
        with one_line_errors():
            compose(config_name, arguments)
    hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)(main)()


def compose(config_name: str, overrides: list[str]) -> DictConfig:
    """Return the composed config.

    Raises:
        InputError: an unknown group or option (the valid ones are listed), or a malformed override.
    """
    OmegaConf.clear_resolvers()
    try:
        with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
            return hydra.compose(config_name, overrides=[open_key(o) for o in overrides])
    except HydraException as error:
        message, _, _ = str(error).partition("Config search path")
        raise InputError(" ".join(message.split())) from error


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
        options = ", ".join(sorted(path.stem for path in (CONF / group).glob("*.yaml")))
        raise InputError(f"{key} is chosen whole: write {group}={value}, one of {options}")
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
            raise SystemExit(3) from None
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT):
            where = f" while writing {error.filename}" if error.filename else ""
            print(
                f"error: {error.strerror}{where}: make room and start the same command again; "
                "earlier checkpoints are intact",
                file=sys.stderr,
            )
            raise SystemExit(1) from None
