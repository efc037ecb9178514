"""Configs in records that anything happened to: what a run could have written, or one line."""

import json

import pytest
from hypothesis import given

from roformer.config.build import from_yaml, to_yaml
from roformer.config.schema import TokenizerConfig
from roformer.report.runs import RecordError, read_yaml_file
from tests.property.hostile import fuzz, mangled, read_or_refused

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
