"""Studies under experiments/: what each asks, its configurations and seeds, and which runs it has.

`study.yaml` is the plan as data: `scripts/sweep.py` starts the runs that it names, the report says
which of them are there, and a test checks that two configurations differ in the claimed keys alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from roformer.json_files import check_shape
from roformer.pipelines import registry
from roformer.report.runs import RUNS, RecordError, read_yaml_file

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]


@with_config(ConfigDict(extra="forbid"))
class _Configuration(TypedDict):
    overrides: list[str]
    seeds: NotRequired[list[int]]
    pipeline: NotRequired[str]


@with_config(ConfigDict(extra="forbid"))
class _Study(TypedDict):
    """A study.yaml; `configurations` are its configurations."""

    title: str
    claim: Name
    scale: str
    outcome: str
    data: NotRequired[str]
    baseline: NotRequired[str]
    pipeline: NotRequired[str]
    common: NotRequired[list[str]]
    configurations: NotRequired[dict[Name, _Configuration]]
    seeds: NotRequired[list[int]]
    differ: NotRequired[list[str]]


class Configuration(NamedTuple):
    """A configuration that a study runs."""

    name: str
    pipeline: str
    overrides: tuple[str, ...]
    """On Hydra's command line, after those that all configurations share."""
    seeds: tuple[int, ...]

    @property
    def command(self) -> list[str]:
        """The words that start its runs, without the seed."""
        return ["python", registry.get(self.pipeline).command, *self.overrides]


class Study(NamedTuple):
    """The plan of a study, and where it is."""

    folder: Path
    title: str
    claim: str
    """Which part of the paper it is about: a key of paper.yaml, or `none`."""
    configurations: tuple[Configuration, ...]
    """None where the study measures finished runs of others."""
    differ: tuple[str, ...]
    """The test keys: config keys in which configurations may differ; all others are the control."""
    scale: str
    """Size of models and data, in a few words."""
    outcome: str
    """The result, in a sentence."""
    data: str = ""
    """Name of its data in tables, where the records' word, `files`, says too little."""
    baseline: str | None = None
    """The control: a configuration's name in tables, or a part of it that no other has."""

    @property
    def has_runs(self) -> bool:
        """True if any run is recorded."""
        return (self.folder / RUNS).is_file()

    def commands(self) -> list[tuple[Configuration, int | None, list[str]]]:
        """Return (configuration, seed, words of the command line) of every run, seeds outermost.

        So that a study that is cut short has the same seeds for all configurations. A grid takes all
        seeds in one command, with seed None.
        """
        grids = [
            configuration
            for configuration in self.configurations
            if registry.get(configuration.pipeline).grid
        ]
        single = [
            configuration for configuration in self.configurations if configuration not in grids
        ]
        found: list[tuple[Configuration, int | None, list[str]]] = [
            (
                configuration,
                None,
                [*configuration.command, f"seed=[{','.join(map(str, configuration.seeds))}]"],
            )
            for configuration in grids
        ]
        for seed in sorted({seed for configuration in single for seed in configuration.seeds}):
            found += [
                (configuration, seed, [*configuration.command, f"seed={seed}"])
                for configuration in single
                if seed in configuration.seeds
            ]
        return found


def read_study(folder: Path) -> Study:
    """Return the study of a folder with a study.yaml.

    Raises:
        RecordError: it cannot be read, a key is missing, unknown or of another type.
    """
    file = folder / "study.yaml"
    content = read_yaml_file(file, what="the plan of a study")
    try:
        check_shape(_Study, content)
        configurations = tuple(
            _configuration(name, configuration, content)
            for name, configuration in content.get("configurations", {}).items()
        )
    except ValueError as error:
        raise RecordError(f"{file} is not the plan of a study: {error}") from error
    told = {
        key: content[key] for key in Study._fields if key in content and key != "configurations"
    }
    return Study(
        folder,
        configurations=configurations,
        **(told | {"differ": tuple(content.get("differ", ()))}),
    )


def read_studies(experiments: Path) -> list[Study]:
    """Return the studies of a folder, by name; see `read_study`."""
    return [read_study(file.parent) for file in sorted(experiments.glob("*/study.yaml"))]


def _configuration(
    name: str, configuration: dict[str, Any], study: dict[str, Any]
) -> Configuration:
    pipeline = configuration.get("pipeline", study.get("pipeline"))
    seeds = configuration.get("seeds", study.get("seeds"))
    if pipeline is None or not seeds:
        raise ValueError(
            f"configurations.{name}: needs a pipeline and seeds, its own or the study's"
        )
    if pipeline not in (known := registry.pipelines()):
        raise ValueError(
            f"configurations.{name}.pipeline: {pipeline} is none of {', '.join(known)}"
        )
    return Configuration(
        name, pipeline, (*study.get("common", ()), *configuration["overrides"]), tuple(seeds)
    )
