"""Composing a command line with Hydra, and explaining what cannot be composed.

A pipeline's options are in Hydra's search path: those of its own folder, `conf/pipelines/<pipeline>/`
with its recipes; of the folders that its registry entry shares with others; and of `conf/` itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from roformer.config.build import near_first
from roformer.errors import InputError
from roformer.pipelines import registry

CONF = Path(__file__).resolve().parents[2] / "conf"


class PipelineGroups(SearchPathPlugin):
    """Hydra's own hook for more folders of config groups: those of the pipeline that is composed."""

    before: ClassVar[list[Path]] = []
    after: ClassVar[list[Path]] = []

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Put folders before and after the one that has the pipeline's YAML."""
        for folder in self.before:
            search_path.prepend("pipeline", f"file://{folder}", "main")
        for folder in self.after:
            search_path.append("pipeline", f"file://{folder}")


Plugins.instance().register(PipelineGroups)


@contextmanager
def groups_of(pipeline: str, config_path: str | None = None) -> Iterator[None]:
    """Let Hydra look for a pipeline's own config groups while it makes a search path.

    Args:
        pipeline: its name.
        config_path: stands in for `conf/`.

    Raises:
        InputError: there is no such pipeline.
    """
    entry = registry.get(pipeline)
    home = Path(config_path or entry.conf or CONF).absolute()
    found = [home / "pipelines" / name for name in (pipeline, *entry.groups)]
    found += [CONF / "pipelines" / group for group in entry.groups] if entry.conf else []
    PipelineGroups.before = [folder for folder in found if folder.is_dir()]
    PipelineGroups.after = [CONF] if entry.conf and not config_path else []
    try:
        yield
    finally:
        PipelineGroups.before = PipelineGroups.after = []


def compose(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """Return the composed config of a pipeline.

    Raises:
        InputError: an unknown group or option (the valid ones are listed), or a malformed override.
    """
    composer = Composer(config_name)
    return without_hydra(composer.compose([composer.open_key(word) for word in overrides]))


def without_hydra(config: DictConfig) -> DictConfig:
    """Return a composed config without Hydra's own part."""
    with read_write(config), open_dict(config):
        config.pop("hydra", None)
    return config


class Composer:
    """A pipeline's config files, and those that the user adds."""

    def __init__(
        self,
        pipeline: str,
        *,
        config_name: str | None = None,
        config_path: str | None = None,
        config_dir: str | None = None,
    ) -> None:
        """Open the folders.

        Args:
            pipeline: its name in the registry.
            config_name: the file to start from; None: the pipeline's.
            config_path: replaces `conf/`.
            config_dir: a folder more.

        Raises:
            InputError: there is no such folder or pipeline.
        """
        self.pipeline = pipeline
        self.config_name = config_name or pipeline
        self.home = Path(config_path or registry.get(pipeline).conf or CONF)
        with groups_of(pipeline, config_path):
            search_path = create_config_search_path(config_path or str(self.home))
        for flag, folder in (("--config-path", config_path), ("--config-dir", config_dir)):
            if folder and "://" not in folder and not Path(folder).is_dir():
                raise InputError(f"{flag}={folder} is no folder: give one with config files")
        if config_dir:  # where Hydra puts it too
            anchor = SearchPathQuery(provider="schema")
            search_path.prepend("command-line", f"file://{os.path.abspath(config_dir)}", anchor)
        setup_globals()
        self.loader = ConfigLoaderImpl(search_path)

    def compose(self, overrides: Sequence[str], mode: RunMode = RunMode.RUN) -> DictConfig:
        """Return the config with Hydra's own part.

        Raises:
            InputError: see the function `compose`.
        """
        try:
            return self._load(overrides, mode)
        except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
            raise InputError(self._explain(overrides, error)) from error

    def jobs(self, overrides: Sequence[str]) -> list[list[str]]:
        """Return the overrides of each job of a multirun; of a sweep that is no list, what is fixed.

        Raises:
            InputError: see the function `compose`.
        """
        fixed = self.compose(overrides, RunMode.MULTIRUN)
        swept = fixed.hydra.sweeper.get("params") or {}
        words = [*(f"{key}={value}" for key, value in swept.items()), *overrides]
        try:
            parsed = OverridesParser.create(config_loader=self.loader).parse_overrides(words)
        except HydraException as error:
            raise InputError(" ".join(str(error).split())) from error
        if any(one.is_sweep_override() and not one.is_discrete_sweep() for one in parsed):
            return [[str(one.input_line) for one in parsed if not one.is_sweep_override()]]
        (jobs,) = BasicSweeper.split_arguments(parsed, None)
        return jobs

    def groups(self) -> dict[str, Any]:
        """Return the pipeline's config groups with the options that it chooses by itself."""
        choices = self._load([], RunMode.RUN).hydra.runtime.choices
        own = {str(group): option for group, option in choices.items()}
        # Hydra does not list a group of which several options are chosen.
        defaults = yaml.safe_load((self.home / f"{self.pipeline}.yaml").read_text())["defaults"]
        for default in defaults:
            if isinstance(default, dict):
                own |= {group: many for group, many in default.items() if isinstance(many, list)}
        return {group: option for group, option in own.items() if not group.startswith("hydra/")}

    def options(self, group: str) -> list[str]:
        """Return the options of a config group; none where the name is no group."""
        return sorted(self.loader.get_group_options(group, ObjectType.CONFIG))

    def open_key(self, override: str) -> str:
        """Turn `key=value` into Hydra's `++key=value`, unless the key is a config group.

        Keys with a default in the schema need not stand in any YAML file, and Hydra would refuse them;
        the strict rebuild refuses unknown ones, with the list of valid keys.

        Raises:
            InputError: a group written with dots, which would change its label and nothing else; or a
                folder that Hydra would make and nothing would be written to.
        """
        key, equals, value = override.partition("=")
        if key.lstrip("+~") == "hydra.run.dir":
            raise InputError(
                f"{override}: a run's folder is <runtime.runs_dir>/<pipeline>/<run id>: set runtime.runs_dir"
            )
        group = key.lstrip("+~").replace(".", "/")
        if equals and "/" in group and group not in override and self.options(group):
            listed = ", ".join(near_first(value, self.options(group)))
            raise InputError(f"{key} is chosen whole: write {group}={value}, one of {listed}")
        if not equals or not key[:1].isalpha() or key.startswith("hydra") or self.options(key):
            return override
        if "/" in key or "@" in key:  # a group that does not exist: Hydra says so
            return override
        return f"++{override}"

    def _load(self, overrides: Sequence[str], mode: RunMode) -> DictConfig:
        return self.loader.load_configuration(
            self.config_name, list(overrides), mode, from_shell=False
        )

    def _explain(self, overrides: Sequence[str], error: Exception) -> str:
        """Return what is wrong with the overrides, in words of Hydra where no better ones are known."""
        for override in overrides:
            key, equals, value = override.partition("=")
            if not equals and not key.startswith("~"):
                return f"{override}: what is set is written key=value or group=option"
            group = key.lstrip("+").partition("@")[0]
            if not equals or not (self.options(group) or "/" in group):
                continue
            try:
                own = list(self.groups())
            except (HydraException, OmegaConfBaseException, yaml.YAMLError):
                break  # the user's own config file: its mistake is what Hydra tells
            if group not in own:
                listed = ", ".join(near_first(group, own))
                return f"{override.lstrip('+')}: {self.pipeline} has no config group {group}; it has {listed}"
            options = self.options(group)
            for one in value.strip("[]").split(","):
                if one.strip() not in (*options, "null"):
                    return self._no_option(group, one.strip())
        return " ".join(re.split("Config search path|See https://", str(error))[0].split())

    def _no_option(self, group: str, option: str) -> str:
        listed = ", ".join(near_first(option, self.options(group)))
        return f"{group}={option}: {self.pipeline} has no such option; choose one of {listed}"
