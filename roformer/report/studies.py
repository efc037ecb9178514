"""Studies under experiments/: what each asks, its arms and seeds, and which runs it has.

`study.yaml` is the plan as data: `scripts/sweep.py` starts the runs that it names, the report says
which of them are there, and a test checks that two arms differ in the claimed keys alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from roformer.pipelines import registry
from roformer.report.recorded import read_recorded
from roformer.report.records import RecordedRun, RecordError, check, read_summary, read_yaml

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]


class _Arm(TypedDict):
    overrides: list[str]
    seeds: NotRequired[list[int]]
    pipeline: NotRequired[str]


class _Study(TypedDict):
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
    """One side of a comparison."""

    name: str
    pipeline: str
    overrides: tuple[str, ...]
    """On Hydra's command line, after those that all arms share."""
    seeds: tuple[int, ...]


class Study(NamedTuple):
    """The plan of a study, and where it is."""

    folder: Path
    title: str
    claim: str
    """Which part of the paper it is about: a key of paper.yaml, or `none`."""
    arms: tuple[Arm, ...]
    """None where the study measures finished runs of others."""
    differ: tuple[str, ...]
    """The test keys: config keys in which arms may differ; all others are the control."""
    scale: str
    """What the numbers were measured on, in a few words."""
    outcome: str
    """What came out, in a sentence."""
    data: str = ""
    """What tables call its data, where the records' word, `files`, says too little."""
    baseline: str | None = None
    """The control: an arm's name in tables, or a part of it that no other has."""

    @property
    def runs(self) -> list[RecordedRun]:
        """The recorded runs."""
        return read_recorded(self.folder)

    def commands(self) -> list[tuple[Arm, int | None, list[str]]]:
        """Return (arm, seed, words of the command line) of every run, seeds outermost.

        So that a study that is cut short has the same seeds for all arms. A grid takes all seeds in
        one command, with seed None.
        """
        found: list[tuple[Arm, int | None, list[str]]] = []
        for arm in self.arms:
            if registry.get(arm.pipeline).grid:
                seeds = f"seed=[{','.join(map(str, arm.seeds))}]"
                found.append((arm, None, [*command(arm), seeds]))
        single = [arm for arm in self.arms if not registry.get(arm.pipeline).grid]
        for seed in sorted({seed for arm in single for seed in arm.seeds}):
            found += [
                (arm, seed, [*command(arm), f"seed={seed}"]) for arm in single if seed in arm.seeds
            ]
        return found


def command(arm: Arm) -> list[str]:
    """Return the words that start an arm's runs, without the seed."""
    return ["python", registry.get(arm.pipeline).command, *arm.overrides]


def read_study(folder: Path) -> Study:
    """Return the study of a folder with a study.yaml.

    Raises:
        RecordError: it cannot be read, a key is missing, unknown or of another type.
    """
    file = folder / "study.yaml"
    content = read_yaml(file, what="the plan of a study")
    try:
        check(_Study, content)
        if unknown := sorted(set(content) - set(_Study.__annotations__)):
            raise ValueError(f"{unknown[0]}: no key of a study")
        arms = tuple(_arm(name, arm, content) for name, arm in content.get("arms", {}).items())
    except ValueError as error:
        raise RecordError(f"{file} is not the plan of a study: {error}") from error
    differ = tuple(content.get("differ", ()))
    about = (content["title"], content["claim"])
    came_out = (content["scale"], content["outcome"])
    named = (content.get("data", ""), content.get("baseline"))
    return Study(folder, *about, arms, differ, *came_out, *named)


def read_studies(experiments: Path) -> list[Study]:
    """Return the studies of a folder, by name.

    Raises:
        RecordError: see `read_study`.
    """
    return [read_study(file.parent) for file in sorted(experiments.glob("*/study.yaml"))]


def statuses(study: Study) -> dict[str, int]:
    """Return how many of a study's recorded runs have which status."""
    found: dict[str, int] = {}
    for run in study.runs:
        status = read_summary(run, "status")["status"]
        found[status] = found.get(status, 0) + 1
    return found


def _arm(name: str, arm: dict[str, Any], study: dict[str, Any]) -> Arm:
    if unknown := sorted(set(arm) - set(_Arm.__annotations__)):
        raise ValueError(f"arms.{name}.{unknown[0]}: no key of an arm")
    pipeline, seeds = (
        arm.get("pipeline", study.get("pipeline")),
        arm.get("seeds", study.get("seeds")),
    )
    if pipeline is None or not seeds:
        raise ValueError(f"arms.{name}: needs a pipeline and seeds, its own or the study's")
    if pipeline not in (known := registry.pipelines()):
        raise ValueError(f"arms.{name}.pipeline: {pipeline} is none of {', '.join(known)}")
    return Arm(name, pipeline, (*study.get("common", ()), *arm["overrides"]), tuple(seeds))
