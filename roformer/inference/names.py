"""Names of trained models: a path or the id of a run; and which run to name where none is."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from roformer import registry
from roformer.errors import InputError

RUNS = "runs"
"""Folder of runs, unless `runtime.runs_dir` says otherwise."""
EXPORT = "export"
"""Folder next to the pipelines' folders; an export has the name of its run."""
AT_STEP = re.compile(r"(?P<run>.+)@(?P<step>\d+)")
"""A run and the step of one of its checkpoints."""


def find(name: str | Path, runs_dir: str | Path = RUNS) -> str:
    """Return the path that a name stands for: itself if it exists, else a run of this id.

    A checkpoint may follow a run (`<run>@610`: step 610) or an id (`<id>/checkpoints/best`);
    anything else, as a Hub id, stays as it is.
    """
    given = Path(name).expanduser()
    if given.exists():
        return str(given)
    if at := AT_STEP.fullmatch(str(name)):
        return _at_step(Path(find(at["run"], runs_dir)), int(at["step"]))
    pipelines = [] if ".." in given.parts else sorted(Path(runs_dir).glob("*"))
    runs_of_id = [
        str(folder / given)
        for folder in pipelines
        if folder.name != EXPORT and (folder / given).exists()
    ]
    if len(runs_of_id) > 1:
        raise InputError(f"{name} is the id of several runs: give one of {', '.join(runs_of_id)}")
    return runs_of_id[0] if runs_of_id else str(name)


def _at_step(run: Path, step: int) -> str:
    """Return a run's checkpoint of a step."""
    folder = run / "checkpoints"
    if not folder.is_dir():
        raise InputError(f"{run}@{step}: no such run {run}: give the folder or id of one")
    if (chosen := folder / f"step_{step:08d}").is_dir():
        return str(chosen)
    there = [path.name[5:].lstrip("0") for path in sorted(folder.glob("step_[0-9]*"))]
    raise InputError(
        f"{run}@{step}: the run has no checkpoint of step {step}: choose one of "
        f"{', '.join(there) or 'none'}, or train it again with "
        f"training.keep_at=[{step}] resume=false"
    )


def named(name: str | None, target: str, kinds: Collection[str]) -> str:
    """Return the name of a run, of a model of one of these kinds, that a script and make target was given."""
    if name is not None and not Path(name).is_file():
        return name
    missing = "no run is given" if name is None else f"{name} is a file, not a run"
    known = registry.pipelines().values()
    pipelines = list(dict.fromkeys(one.runs or one.name for one in known if one.kind in kinds))
    trained = [
        step.parent
        for pipeline in pipelines
        for step in Path(RUNS).glob(f"{pipeline}/*/checkpoints/step_[0-9]*")
    ]
    if not trained:
        where = " or ".join(f"{RUNS}/{pipeline}/" for pipeline in pipelines)
        raise InputError(
            f"{missing}, and there is no trained one under {where}: train one with make {pipelines[0]}"
        )
    run = max(trained, key=lambda folder: folder.stat().st_mtime).parent
    raise InputError(
        f"{missing}: the newest here is make {target} RUN={run}, or python scripts/{target}.py {run}"
    )
