"""Plans of studies compose, configurations differ only in the claimed keys, runs were planned."""

import dataclasses
import functools
import itertools
import json
import os
import runpy
import subprocess
import sys

import pytest

from roformer import registry
from roformer.config.build import build, plain, run_id
from roformer.pipelines.glue import cells_of
from roformer.pipelines.run import resolve
from roformer.pipelines.stages import stages_of
from roformer.report.runs import RecordError, flattened, read_recorded, read_runs
from roformer.report.studies import read_study
from roformer.tasks.classification import start_of, with_start
from tests.conf.composed import built
from tests.conftest import REPOSITORY
from tests.recorded_runs import all_studies

EXTENSIONS = {*filter(None, os.environ.get(registry.EXTENSIONS, "").split(","))}
ALL = all_studies()
STUDIES = [study for study in ALL if set(study.extensions) == EXTENSIONS]
BY_NAME = {study.folder.name: study for study in STUDIES}
studies = pytest.mark.parametrize("study", STUDIES, ids=BY_NAME)


@functools.cache
def composed(pipeline, overrides):
    return built(pipeline, overrides)


@functools.cache
def planned(name):
    """Return configuration → configs of its runs, composed from its commands, as on a CPU with bf16."""
    found = {}
    study = BY_NAME[name]
    for configuration, words in study.commands():
        pipeline = study.configurations[configuration].pipeline
        weights = [word.removeprefix("init_from=") for word in words if "init_from=" in word]
        # The config has the sizes of the weights, unless a fine-tuning's command has them.
        typed = any(word.startswith("model") for word in words)
        untyped = pipeline == "glue" and bool(weights) and not typed
        if untyped or any(place.startswith("data/") for place in weights):
            places = [REPOSITORY / weights[0], *REPOSITORY.glob(f"runs/*/{weights[0]}")]
            if not any(place.exists() for place in places):
                pytest.skip(f"{weights[0]} is not here")
        config = composed(pipeline, tuple(words[2:-1]))
        seed = words[-1].removeprefix("seed=")
        content = plain(dataclasses.replace(config, seed=json.loads(seed)))
        if content["training"]["precision"] == "auto":
            content["training"]["precision"] = "bf16"
        config = build(type(config), content)
        several = {"glue": cells_of, "stages": stages_of}
        runs = several[pipeline](config) if pipeline in several else [config]
        if weights and pipeline not in several:
            runs = [resolve(run) for run in runs]  # with the hash of published weights
        if untyped:
            runs = [with_start(cell, start_of(cell)) for cell in runs]
        found.setdefault(configuration, []).extend(runs)
    return found


def differing(one, other):
    """Return the keys in which two flat configs differ."""
    return {key for key in one | other if one.get(key, "absent") != other.get(key, "absent")}


@studies
def test_configurations_differ_in_the_claimed_keys_alone(study):
    """Also that each key claimed is one in which some configurations do differ."""
    found = set()
    configs = planned(study.folder.name)
    contents = {id(run): flattened(plain(run)) for runs in configs.values() for run in runs}
    for (name, ones), (_, others) in itertools.combinations(configs.items(), 2):
        for one, other in itertools.product(ones, others):
            if type(one) is not type(other) or one.seed != other.seed:
                continue
            keys = differing(contents[id(one)], contents[id(other)])
            if study.configurations[name].pipeline == "glue":
                if list(one.task) != list(other.task):
                    continue
                if "optimizer.learning_rate" not in study.differ:
                    keys.discard("optimizer.learning_rate")  # of the grid
            claimed = {c for c in study.differ for key in keys if f"{key}.".startswith(f"{c}.")}
            unclaimed = [
                key for key in keys if not any(f"{key}.".startswith(f"{c}.") for c in claimed)
            ]
            assert not unclaimed
            found |= claimed
    assert found == set(study.differ)


@studies
def test_recorded_runs_were_planned(study):
    ids = {
        name: {run_id(config) for config in configs}
        for name, configs in planned(study.folder.name).items()
    }
    for run in read_runs([study.folder]).runs.itertuples() if study.has_runs else []:
        of = {name for name, configs in ids.items() if run.run in configs}
        assert of and run.planned in {"", *of}


@pytest.mark.slow
@pytest.mark.skipif(bool(EXTENSIONS), reason="this is the process with the extensions")
@pytest.mark.parametrize("study", [s for s in ALL if s.extensions], ids=lambda s: s.folder.name)
def test_studies_with_encodings_of_their_own(study):
    """They pass the tests of this file in a process that has their encodings."""
    command = [sys.executable, "-m", "pytest", "-q", __file__, "-k", f"[{study.folder.name}]"]
    place = {registry.EXTENSIONS: ",".join(study.extensions), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, cwd=REPOSITORY, env=os.environ | place, stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stdout.decode()


@studies
def test_studies_are_whole(study):
    """Every study has a plan, and a report if it has recorded runs."""
    assert (study.folder / "PLAN.md").is_file() or study.folder.name == "speed"
    assert (study.folder / "REPORT.md").is_file() or not study.has_runs


def test_a_study_of_the_first_form_of_records_takes_more():
    """convergence's first records keep no files."""
    complete = runpy.run_path(str(REPOSITORY / "scripts" / "record.py"))["completing"]()
    (record, *_) = (
        record
        for record, _ in read_recorded(BY_NAME["convergence"].folder).values()
        if "files" not in record
    )
    assert complete(record) == record


def test_every_record_is_of_a_study():
    folders = {path.parent for path in REPOSITORY.glob("experiments/**/runs.jsonl")}
    assert folders <= {study.folder for study in ALL}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"configurations": {"Rotary": {"overrides": []}}}, "configurations"),
        (
            {"configurations": {"a": {"overrides": [], "lr": 1}}},
            "configurations.a.lr: unknown key; valid keys here: overrides, pipeline, seeds$",
        ),
        ({"title": None, "titel": "t"}, "study: titel: unknown key; valid keys here: title, "),
        (
            {"configurations": {"a": {"overrides": []}}, "pipeline": "nope", "seeds": [0]},
            "study: there is no pipeline nope: choose one of pretrain",
        ),
        ({"configurations": {"a": {"overrides": []}}, "seeds": []}, "needs a pipeline and seeds"),
    ],
)
def test_a_mistake_in_a_plan_is_one_line(tmp_path, change, message):
    content = {"title": "t", "pipeline": "pretrain", "scale": ""}
    (tmp_path / "study.yaml").write_text(json.dumps(content | change))
    with pytest.raises(RecordError, match=message) as raised:
        read_study(tmp_path)
    assert "\n" not in str(raised.value) and "study.yaml" in str(raised.value)


def test_a_broken_plan_is_called_a_plan(tmp_path):
    """Not the config of a run."""
    (tmp_path / "study.yaml").write_text("title: [\n")
    with pytest.raises(RecordError, match=r"is not the plan of a study: unreadable YAML: .*line 2"):
        read_study(tmp_path)
