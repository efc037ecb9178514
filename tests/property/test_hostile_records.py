"""Records of runs that anything happened to: what a run could have written, or one line.

A reader returns each value that is used in its own type, or names the file that lacks it.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.config.build import from_yaml, to_yaml
from roformer.config.schema import TokenizerConfig
from roformer.errors import InputError
from roformer.report.runs import RecordError, read_yaml_file
from roformer.training.records import RunFolder, read_metrics
from tests.property.hostile import NOT_OBJECTS, fuzz, mangled, mangled_json, read_or_refused

SUMMARY = {
    **dict.fromkeys(["run_id", "status", "task"], "x"),
    **dict.fromkeys(["steps", "tokens", "wall_seconds"], 3),
    "pipeline": "glue",
    "headline": "rte/accuracy",
    "metrics": {"rte/accuracy": 0.5, "rte/constant": None},
    "best": {"step": 3, "metrics": {"rte/accuracy": 0.5}},
}
ENVIRONMENT = {"data": "0123", "seed": 0, "packages": {}, "resumed": [{"commit": None}]}
METRICS = b"".join(b'{"step": %d, "valid/mlm_loss": 3.5}\n' % step for step in (1, 2, 3))


@given(mangled(json.dumps(SUMMARY).encode()) | mangled_json(SUMMARY))
@fuzz(80)
def test_a_summary_has_what_is_used_of_it(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp()
    (folder / "summary.json").write_bytes(content)
    found = read_or_refused(lambda: RunFolder(folder).summary(), folder / "summary.json")
    if found is not None:
        assert all(isinstance(found[key], str) for key in ("run_id", "status"))
        assert {type(v) for v in found["metrics"].values()} <= {int, float, type(None)}
        if found.get("pipeline") == "glue":
            found["best"]["metrics"].get(found["headline"])


@given(mangled(json.dumps(ENVIRONMENT).encode()) | mangled_json(ENVIRONMENT))
@fuzz(80)
def test_an_environment_names_the_data(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp()
    (folder / "env.json").write_bytes(content)
    found = read_or_refused(RunFolder(folder).data, folder / "env.json")
    assert found is None or isinstance(found, str)


def test_what_is_no_json_object_is_refused(tmp_path):
    for content in NOT_OBJECTS:
        (tmp_path / "summary.json").write_bytes(content)
        with pytest.raises(InputError, match=r"summary.json is damaged"):
            RunFolder(tmp_path).summary()


@given(mangled(METRICS), st.booleans())
@fuzz(80)
def test_metrics_are_all_lines_or_all_but_a_torn_last(tmp_path_factory, content, torn):
    file = tmp_path_factory.getbasetemp() / "metrics.jsonl"
    file.write_bytes(content)
    rows = read_or_refused(lambda: read_metrics(file, torn=torn), file)
    if rows is not None:
        lines = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
        assert lines - len(rows) in ((0, 1) if torn else (0,))
        assert all(type(row["step"]) is int and row["step"] >= 0 for row in rows)


@pytest.mark.parametrize("step", ["1e999", "1.5", '"1"', "true", "NaN", "-1", "[" * 100_000])
def test_a_line_without_a_step_is_named(tmp_path, step):
    line = f'{{"step": {step}}}\n'.encode()
    (file := tmp_path / "metrics.jsonl").write_bytes(METRICS + line + METRICS)
    for torn in (False, True):
        with pytest.raises(InputError, match=r"metrics.jsonl:4: not a metrics row"):
            read_metrics(file, torn=torn)


def test_a_command_of_any_bytes_does_not_cost_the_summary(tmp_path):
    """It is read when the training is over."""
    (tmp_path / "command.txt").write_bytes(b"python \xff scripts/x.py\n")
    assert RunFolder(tmp_path).command() == "python \ufffd scripts/x.py"


CONFIGS = [
    "a: !!python/object/apply:os.system ['true']",
    *("a: !!set {b}", "a: !!timestamp 1", "a: !!binary aGk=", "a: " + "1" * 5000),
    *("- 1", "5", "a: {", "\0", "a: \x1b", "? [1, 2]\n: 3"),
]


@pytest.mark.parametrize("text", CONFIGS, ids=lambda text: repr(text[:20]))
def test_a_config_that_no_run_wrote_is_one_line(tmp_path, text):
    (file := tmp_path / "config.yaml").write_text(text)
    with pytest.raises(RecordError, match=r"config.yaml is not a config"):
        read_yaml_file(file, what="a config")
    assert read_or_refused(lambda: from_yaml(TokenizerConfig, text), "") is None


@given(mangled(to_yaml(TokenizerConfig()).encode()))
@fuzz(80)
def test_a_config_is_read_or_refused(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "config.yaml"
    file.write_bytes(content)
    found = read_or_refused(lambda: read_yaml_file(file, what="a config"), file, error=RecordError)
    assert found is None or json.loads(json.dumps(found, sort_keys=True)) is not None
    read_or_refused(lambda: from_yaml(TokenizerConfig, content.decode(errors="replace")), "")


def test_nothing_of_a_config_is_resolved(monkeypatch):
    """A record from elsewhere may not read this machine's environment."""
    monkeypatch.setenv("HOSTILE", "secret")
    assert from_yaml(TokenizerConfig, "source: ${oc.env:HOSTILE}").source == "${oc.env:HOSTILE}"
