"""Runs that the studies under experiments/ recorded."""

import json

from roformer.report.recorded import matching, read_recorded
from tests.conftest import REPOSITORY

EXPERIMENTS = REPOSITORY / "experiments"


def recorded(study, pattern="*"):
    """Return the recorded runs of a study whose ids match."""
    return matching(EXPERIMENTS / study, [f"runs/{pattern}"])


def all_recorded():
    """Return the recorded runs of all studies."""
    studies = sorted(file.parent for file in EXPERIMENTS.glob("*/runs.jsonl"))
    return [run for study in studies for run in read_recorded(study)]


def write_folder(run, folder):
    """Write a recorded run as the folder that the run left."""
    for name, content in run.files.items():
        (file := folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name == "metrics.jsonl":
            file.write_text("".join(json.dumps(row) + "\n" for row in content))
        else:
            file.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def change_recorded(study, name, change):
    """Change the lines of a study's runs.jsonl whose id has `name` in it, each as parsed."""
    file = study / "runs.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if name in line["id"]:
            change(line)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
