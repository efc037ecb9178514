"""Runs that the studies under experiments/ recorded."""

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from roformer.report.runs import RUNS, read_recorded, study_files
from roformer.report.studies import read_study
from tests.conftest import REPOSITORY

EXPERIMENTS = REPOSITORY / "experiments"


def all_studies():
    """Return the studies by name, those of the appendix last."""
    return [read_study(file.parent) for file in study_files(EXPERIMENTS, "study.yaml")]


def folder_of(study):
    """Return the folder of a study, on the front page or in the appendix."""
    (folder,) = (f for f in (EXPERIMENTS / study, EXPERIMENTS / "appendix" / study) if f.is_dir())
    return folder


class Recorded(NamedTuple):
    """A recorded run; `files` are the files of a run's folder, parsed."""

    path: Path
    files: dict[str, Any]

    @property
    def name(self):
        return self.path.name

    def __str__(self):
        return str(self.path)


def recorded(study, pattern="*"):
    """Return the recorded runs of a study whose ids match."""
    found = []
    for name, (record, rows) in read_recorded(folder_of(study)).items():
        if fnmatchcase(name, pattern):
            files = {
                "summary.json": record["summary"],
                "config.yaml": record["config"],
                "env.json": record["environment"],
                "command.txt": record["command"],
                "metrics.jsonl": rows,
                **record.get("files", {}),
            }
            found.append(Recorded(folder_of(study) / "runs" / name, files))
    assert found, f"{study} has no {pattern}"
    return found


def all_recorded():
    """Return the recorded runs of all studies."""
    studies = [file.parent.name for file in study_files(EXPERIMENTS, RUNS)]
    return [run for study in studies for run in recorded(study)]


def write_folder(run, folder):
    """Write a recorded run as the folder that the run left."""
    for name, content in run.files.items():
        (file := folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name == "metrics.jsonl":
            file.write_text("".join(json.dumps(row) + "\n" for row in content))
        else:
            file.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder
