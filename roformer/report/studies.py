"""Studies under experiments/: what each asks, its configurations and seeds, and which runs it has.

`study.yaml` is the plan as data: `scripts/sweep.py` starts the runs that it names, the report says
which of them are there, and a test checks that two configurations differ in the claimed keys alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from roformer.pipelines import registry
from roformer.report.runs import RUNS, RecordError, check, read_yaml_file

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]


@with_config(ConfigDict(extra="forbid"))
class _Arm(TypedDict):
    overrides: list[str]
    seeds: NotRequired[list[int]]
    pipeline: NotRequired[str]


@with_config(ConfigDict(extra="forbid"))
class _Study(TypedDict):
    """A study.yaml; `arms` are its configurations."""

    title: str
    claim: Name
    scale: str
    outcome: str
    data: NotRequired[str]
    baseline: NotRequired[str]
    pipeline: NotRequired[str]
    common: NotRequired[list[str]]
    arms: NotRequired[dict[Name, _Arm]]
    seeds: NotRequired[list[int]]
    differ: NotRequired[list[str]]


class Arm(NamedTuple):
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
    arms: tuple[Arm, ...]
    """None where the study measures finished runs of others."""
    differ: tuple[str, ...]
    """The test keys: config keys in which configurations may differ; all others are the control."""
    scale: str
    """What the numbers were measured on, in a few words."""
    outcome: str
    """What came out, in a sentence."""
    data: str = ""
    """What tables call its data, where the records' word, `files`, says too little."""
    baseline: str | None = None
    """The control: a configuration's name in tables, or a part of it that no other has."""

    @property
    def has_runs(self) -> bool:
        """Whether any run is recorded."""
        return (self.folder / RUNS).is_file()

    def commands(self) -> list[tuple[Arm, int | None, list[str]]]:
        """Return (configuration, seed, words of the command line) of every run, seeds outermost.

        So that a study that is cut short has the same seeds for all configurations. A grid takes all
        seeds in one command, with seed None.
        """
        grids = [arm for arm in self.arms if registry.get(arm.pipeline).grid]
        single = [arm for arm in self.arms if arm not in grids]
        found: list[tuple[Arm, int | None, list[str]]] = [
            (arm, None, [*arm.command, f"seed=[{','.join(map(str, arm.seeds))}]"]) for arm in grids
        ]
        for seed in sorted({seed for arm in single for seed in arm.seeds}):
            found += [
                (arm, seed, [*arm.command, f"seed={seed}"]) for arm in single if seed in arm.seeds
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
        check(_Study, content)
        arms = tuple(_arm(name, arm, content) for name, arm in content.get("arms", {}).items())
    except ValueError as error:
        raise RecordError(f"{file} is not the plan of a study: {error}") from error
    told = {key: content[key] for key in Study._fields if key in content and key != "arms"}
    return Study(folder, arms=arms, **(told | {"differ": tuple(content.get("differ", ()))}))


def read_studies(experiments: Path) -> list[Study]:
    """Return the studies of a folder, by name; see `read_study`."""
    return [read_study(file.parent) for file in sorted(experiments.glob("*/study.yaml"))]


def _arm(name: str, arm: dict[str, Any], study: dict[str, Any]) -> Arm:
    pipeline = arm.get("pipeline", study.get("pipeline"))
    seeds = arm.get("seeds", study.get("seeds"))
    if pipeline is None or not seeds:
        raise ValueError(f"arms.{name}: needs a pipeline and seeds, its own or the study's")
    if pipeline not in (known := registry.pipelines()):
        raise ValueError(f"arms.{name}.pipeline: {pipeline} is none of {', '.join(known)}")
    return Arm(name, pipeline, (*study.get("common", ()), *arm["overrides"]), tuple(seeds))
