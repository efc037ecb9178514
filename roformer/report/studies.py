"""Studies under experiments/: question, configurations, seeds and recorded runs.

`study.yaml` is the plan as data: `scripts/sweep.py` starts its runs, the report lists the recorded ones,
and a test checks that configurations differ only in the claimed keys.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from roformer import registry
from roformer.config.build import near_first
from roformer.errors import InputError
from roformer.report.runs import APPENDIX, RUNS, RecordError, read_yaml_file

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]


class Configuration(BaseModel, extra="forbid"):
    """A configuration that a study runs; the default pipeline and seeds are the study's."""

    overrides: list[str]
    """Hydra overrides, after those that all configurations share."""
    seeds: list[int] = []
    pipeline: str = ""


class Result(BaseModel, extra="forbid"):
    """A metric of two configurations of a study: a row of the README's table of claims."""

    claim: str
    """Claim of the paper, in a few words."""
    test: str
    """Metric, data and budget of our test, in a few words."""
    verdict: str
    """Verdict on the claim, in a few words."""
    metric: str
    """Its name in the summaries of the runs."""
    ours: str
    """The configuration that should be ahead: its name in tables, or a unique part of it."""
    baseline: str
    """The configuration that it is compared with, named likewise."""


class Study(BaseModel, extra="forbid"):
    """The plan of a study, and its folder."""

    folder: Path
    title: str
    scale: str
    """Size of models and data, in a few words."""
    toy: bool = False
    """True for synthetic data: a regression test, which is no evidence for a claim of the paper."""
    results: list[Result] = []
    data: str = ""
    """Name of its data in tables, if `files` in the records is not enough."""
    baseline: str | None = None
    """The configuration that others are compared with: its name in tables, or a unique part of it."""
    pipeline: str = ""
    extensions: list[str] = []
    """Modules that its runs need in ROFORMER_EXTENSIONS, below the root of the repository."""
    common: list[str] = []
    """Overrides of all configurations."""
    configurations: dict[Name, Configuration] = {}
    """Configurations by name; empty if the study measures finished runs of other studies."""
    seeds: list[int] = []
    differ: list[str] = []
    """The config keys in which configurations may differ; all others are the control."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name, one in self.configurations.items():
            one.pipeline, one.seeds = one.pipeline or self.pipeline, one.seeds or self.seeds
            if not (one.pipeline and one.seeds):
                raise ValueError(
                    f"configurations.{name}: needs a pipeline and seeds, its own or the study's"
                )
            registry.get(one.pipeline)
        return self

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def path(self) -> str:
        """Its folder below the root of the repository."""
        parts = self.folder.resolve().parts
        return "/".join(parts[-3:] if parts[-2] == APPENDIX else parts[-2:])

    @property
    def rerun(self) -> str:
        """The command that starts its runs; empty if it has none."""
        return f"make sweep STUDY={self.path}" if self.configurations else ""

    @property
    def has_runs(self) -> bool:
        """True if any run is recorded."""
        return (self.folder / RUNS).is_file()

    def commands(self, only: Collection[int] = ()) -> list[tuple[str, list[str]]]:
        """Return (configuration, words of the command line) of every run, or of `only` these seeds.

        Seeds are the outermost loop, so an interrupted study has the same seeds for all configurations.
        Grids, which take all seeds in one command, are last, because they may start from the other runs.
        """
        found: list[tuple[float, str, list[str]]] = []
        for name, one in self.configurations.items():
            pipeline = registry.get(one.pipeline)
            words = ["python", pipeline.script, *self.common, *one.overrides]
            seeds = [seed for seed in one.seeds if not only or seed in only]
            if pipeline.grid and seeds:
                found.append((math.inf, name, [*words, f"seed=[{','.join(map(str, seeds))}]"]))
            elif not pipeline.grid:
                found += [(seed, name, [*words, f"seed={seed}"]) for seed in seeds]
        return [(name, words) for _, name, words in sorted(found, key=lambda run: run[0])]

    def configuration_of(self, command: str) -> str:
        """Return the configuration of a run's command line; empty if it matches no configuration.

        If the overrides of several configurations occur, the one with the most overrides is chosen.
        """
        given = set(shlex.split(command))
        fitting = [
            (len(one.overrides), name)
            for name, one in self.configurations.items()
            if given.issuperset([*self.common, *one.overrides])
        ]
        return max(fitting, default=(0, ""))[1]


def require_plan(folder: Path) -> None:
    """Check that a study has its PLAN.md, without which its runs are not recorded."""
    if not (folder / "PLAN.md").is_file():
        raise InputError(f"{folder / 'PLAN.md'} is missing: write the plan before the runs")


def read_study(folder: Path) -> Study:
    """Return the study of a folder with a study.yaml."""
    file = folder / "study.yaml"
    content = read_yaml_file(file, what="the plan of a study")
    try:
        return Study(**content | {"folder": folder})
    except ValidationError as error:
        # A misspelt key is also a missing key; the unknown key is the better message.
        problems = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        raise RecordError(f"{file} is not the plan of a study: {_explain(problems[0])}") from error


def _explain(problem: Any) -> str:
    """Return the problem of a plan: the key, and pydantic's message or the valid keys."""
    path, said = [str(part) for part in problem["loc"]], problem["msg"]
    if problem["type"] == "extra_forbidden":
        parts: dict[str, type[BaseModel]] = {"configurations": Configuration, "results": Result}
        valid = sorted({*parts.get(path[0], Study).model_fields} - {"folder"})
        said = f"unknown key; valid keys here: {', '.join(near_first(path[-1], valid))}"
    return ": ".join(filter(None, [".".join(path), said.removeprefix("Value error, ")]))
