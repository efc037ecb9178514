"""Composing a command line with Hydra, and explaining what cannot be composed.

A pipeline's options are in Hydra's search path: the options in `conf/pipelines/<pipeline>/`
with its recipes; of the folders that its registry entry shares with others; and of `conf/` itself.
"""

from __future__ import annotations

import os.path
import re
import shlex
import typing
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.utils import setup_globals
from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from roformer import registry
from roformer.config.build import build, hints_at, hints_of, near_first, parts_of
from roformer.config.start import AUTO, SCRATCH, adopt, check_model, of_the_weights, typed_keys
from roformer.config.typed import VERBATIM
from roformer.errors import InputError

CONF = Path(__file__).resolve().parents[2] / "conf"
HYDRA_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError)
QUOTED = r"""\s*(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*"""
ELEMENT = re.compile(rf"({QUOTED}|(?:\$\{{[^}}]*\}}|[^,])*)(?:,|$)")
"""One of several values between commas; those in quotes or in `${…}` do not count."""


def compose(pipeline: str, overrides: Sequence[str]) -> Any:
    """Return the typed config of a command line, or raise InputError: what is wrong, what is valid."""
    composer = _composer(pipeline)
    return composer.build(composer.compose([composer.open_key(word) for word in overrides]))


@cache
def _composer(pipeline: str) -> Composer:
    return Composer(pipeline)


class Composer(ConfigLoaderImpl):
    """Hydra's loader of a pipeline's config files, and of those that the user adds with Hydra's flags.

    A config with `init_from` has the settings of these weights, as far as they exist by now. A fine-tuning
    takes the model of its weights when it starts, so here its config may not contradict them.
    """

    def __init__(
        self,
        pipeline: str,
        *,
        config_name: str | None = None,
        config_path: str | None = None,
        config_dir: str | None = None,
    ) -> None:
        self.entry = registry.get(pipeline)
        self.schema, self.config_name = self.entry.config(), config_name or pipeline
        for flag, folder in (("--config-path", config_path), ("--config-dir", config_dir)):
            if folder and "://" not in folder and not Path(folder).is_dir():
                raise InputError(f"{flag}={folder} is no folder: give one with config files")
        outside = self.entry.conf
        self.home = Path(config_path or outside or CONF).absolute()
        if not CONF.is_dir():
            raise InputError(
                "conf/, with the configs, is not part of an installed package: "
                "install a clone of the repository with pip install -e ."
            )
        path = create_config_search_path(config_path or str(self.home))
        own = [self.home / "pipelines" / name for name in (pipeline, *self.entry.groups)]
        own += [CONF / "pipelines" / group for group in self.entry.groups] if outside else []
        for place in filter(Path.is_dir, own):
            path.prepend("pipeline", f"file://{place}", "main")
        schema = SearchPathQuery(provider="schema")
        if outside and not config_path:
            path.prepend("pipeline", f"file://{CONF}", schema)
        for module in registry.extensions().values():
            options = module.with_name("conf")
            if options.is_dir() and options != outside:
                path.prepend("extension", f"file://{options}", schema)
        if config_dir:
            path.prepend("command-line", f"file://{Path(config_dir).absolute()}", schema)
        version.setbase("1.3")
        setup_globals()
        super().__init__(path)

    def _load_single_config(self, default: Any, repo: Any) -> Any:
        """See Hydra's; a task's file sets the task of its name, or two tasks would be one."""
        group, _, name = (default.config_path or "").rpartition("/")
        if group == "task" and default.package != f"task.{name}":
            raise InputError(
                f"{name}.yaml sets {default.package}: its first line must be # @package task.{name}"
            )
        return super()._load_single_config(default, repo)

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        *args: Any,
        **more: Any,
    ) -> DictConfig:
        """Return a config, also to Hydra's own flags, with the settings of its weights."""
        config = super().load_configuration(config_name, overrides, run_mode, *args, **more)
        start, adopts = OmegaConf.select(config, "init_from"), self.entry.adopts_weights
        typed = typed_keys(overrides)
        if not start or start in (AUTO, SCRATCH) or not (adopts or of_the_weights(typed)):
            return config
        # Only now: without weights a folder may have ${hydra:…}, which Hydra knows later.
        keys = ("init_revision", "runtime.runs_dir")
        revision, runs = (OmegaConf.select(config, key) for key in keys)
        weights = self.entry.weights(start, revision, runs or "runs")
        if weights is None:
            return config
        plain: Any = OmegaConf.to_container(config)
        if not adopts:
            check_model(plain, weights, overrides)
            return config
        groups = self.compute_defaults_list(config_name, overrides, run_mode).overrides
        model = hints_of(self.schema)["model"]
        adopted = adopt(plain, model, weights, typed, groups.override_choices)
        with read_write(config), open_dict(config):
            for section, content in adopted.items():
                OmegaConf.update(config, section, content, merge=False)
        return config

    def compose(self, overrides: Sequence[str], mode: RunMode = RunMode.RUN) -> DictConfig:
        """Return the config with Hydra's own part; raise InputError as the function `compose`."""
        words = list(overrides)
        try:
            return self.load_configuration(self.config_name, words, mode, from_shell=False)
        except HYDRA_ERRORS as error:
            raise InputError(self._explain(error)) from error

    def build(self, composed: DictConfig) -> Any:
        """Return the typed config of a composed one, without Hydra's part."""
        keys: Any = [key for key in composed if key != "hydra"]
        return build(self.schema, OmegaConf.masked_copy(composed, keys))

    def jobs(self, overrides: Sequence[str]) -> list[list[str]]:
        """Return the overrides of each job of a multirun; of a sweep that is no list, what is fixed."""
        fixed = self.compose(overrides, RunMode.MULTIRUN)
        swept = fixed.hydra.sweeper.get("params") or {}
        words = [*(f"{key}={value}" for key, value in swept.items()), *overrides]
        try:
            parsed = OverridesParser.create(config_loader=self).parse_overrides(words)
        except HydraException as error:
            raise InputError(self._explain(error)) from error
        if any(one.is_sweep_override() and not one.is_discrete_sweep() for one in parsed):
            return [[str(one.input_line) for one in parsed if not one.is_sweep_override()]]
        (jobs,) = BasicSweeper.split_arguments(parsed, None)
        return jobs

    def groups(self, config: DictConfig | None = None) -> dict[str, Any]:
        """Return the pipeline's config groups with the options chosen in a config; None: the defaults."""
        config = config or self.load_configuration(self.config_name, [], RunMode.RUN)
        # Hydra does not list a group of which several options are chosen.
        defaults = yaml.safe_load((self.home / f"{self.entry.name}.yaml").read_text())["defaults"]
        chosen = [
            one for default in defaults if isinstance(default, dict) for one in default.items()
        ]
        several = {group: options for group, options in chosen if isinstance(options, list)}
        choices = several | dict(config.hydra.runtime.choices)
        return {group: one for group, one in choices.items() if not group.startswith("hydra/")}

    def options(self, group: str) -> list[str]:
        """Return the options of a config group; none where the name is no group."""
        return sorted(self.repository.get_group_options(group, ObjectType.CONFIG))

    def open_key(self, override: str, *, multirun: bool = False) -> str:
        """Turn `key=value` into Hydra's `++key=value`, unless the key is a config group.

        The value of a key that holds a path is put in quotes; see `quote_path`.

        Keys with a default in the schema may be in no YAML file, and Hydra would reject them;
        the typed config rejects unknown ones, with the list of valid keys.
        """
        key, equals, value = override.partition("=")
        bare = key.lstrip("+~")
        kinds = [kind for hint in hints_at(self.schema, bare.split(".")) for kind in parts_of(hint)]
        if equals and VERBATIM in kinds:
            override = f"{key}={quote_path(value, kinds, multirun=multirun)}"
        if bare == "hydra.run.dir":
            raise InputError(
                f"{override}: a run's folder is <runtime.runs_dir>/<pipeline>/<run id>: set runtime.runs_dir"
            )
        group = bare.replace(".", "/")
        if equals and group != bare and (options := self.options(group)):
            listed = ", ".join(near_first(value, options))
            raise InputError(f"{key} is chosen whole: write {group}={value}, one of {listed}")
        # A key with a slash or @ is a group; Hydra reports unknown ones.
        leave = not equals or not key[:1].isalpha() or key.startswith("hydra") or set("/@") & {*key}
        if leave or self.options(key):
            return override
        if "." not in key and key not in hints_of(self.schema):
            for meant in (one for one in self.groups() if one.endswith(f"/{key}")):
                raise InputError(f"{override}: did you mean {meant}={value}?")
        return f"++{override}"

    def _explain(self, error: Exception) -> str:
        """Return what is wrong and what to do about it, in Hydra's words if it is something else."""
        line = " ".join(re.split("Config search path|See https://", str(error))[0].split())
        if found := re.match("Could not override '([^@]+/[^@]+)'", line):
            groups = ", ".join(near_first(found[1], sorted(self.groups())))
            return f"{found[1]}: {self.entry.name} has no such config group; it has {groups}"
        # A recipe may be the user's own file: Hydra names it.
        if found := re.match("In '(?!recipe/).+?': Could not (?:find|load) '([^']+)/(.+?)'", line):
            group, option = found.groups()
            options = ", ".join(near_first(option, self.options(group)))
            return f"{group}={option}: no such option; choose one of {options}"
        if isinstance(error, OverrideParseException):
            key, equals, value = str(error.override).lstrip("+").partition("=")
            if not equals:
                return f"{key}: write key=value or group=option"
            if value[:1] not in "[{" and re.fullmatch(r"[\w./@~]+", key):
                quoted = shlex.quote(f"{key}={_in_quotes(value)}")
                return f"{key}={value}: this value needs quotes, {quoted}"
        return line


# --- paths on the command line -------------------------------------------------------------------


def quote_path(value: str, kinds: Sequence[Any], *, multirun: bool = False) -> str:
    """Return the value of a path key in quotes, so that Hydra's grammar cannot cut it up.

    The name of an existing file or folder is always that path. Other values keep Hydra's meaning if they
    are in quotes or null, for keys of this type a list, and in a multirun values between commas. `${…}`
    is resolved. `kinds` are the types that the key may have.
    """
    if value == "null" and type(None) in kinds:
        return value
    if os.path.lexists(os.path.expanduser(value)):
        return _in_quotes(value.replace("${", "\\${"))
    if re.fullmatch(QUOTED, value):
        return value
    takes_list = any(typing.get_origin(kind) in (list, tuple) for kind in kinds)
    if takes_list and value.startswith("[") and value.endswith("]"):
        return f"[{','.join(_each_quoted(value[1:-1]))}]"
    return ",".join(_each_quoted(value)) if multirun else _in_quotes(value)


def _each_quoted(values: str) -> list[str]:
    found = [match[1].strip() for match in ELEMENT.finditer(values) if match[0]]
    return [one if re.fullmatch(QUOTED, one) else _in_quotes(one) for one in found]


def _in_quotes(text: str) -> str:
    return QuotedString(text=text, quote=Quote.double).with_quotes()
