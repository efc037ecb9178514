"""Configs in records that anything happened to: what a run could have written, or one line."""

import pytest

from roformer.config.build import from_yaml
from roformer.config.schema import TokenizerConfig
from roformer.errors import InputError
from roformer.report.runs import RecordError, read_yaml_file

CONFIGS = ["a: !!python/object/apply:os.system ['true']", "a: !!set {b}", "- 1", "a: {", "\0"]


@pytest.mark.parametrize("text", CONFIGS)
def test_a_config_that_no_run_wrote_is_one_line(tmp_path, text):
    (file := tmp_path / "config.yaml").write_text(text)
    with pytest.raises(RecordError, match=r"config.yaml is not a config"):
        read_yaml_file(file, what="a config")
    with pytest.raises(InputError):
        from_yaml(TokenizerConfig, text)


def test_nothing_of_a_config_is_resolved(monkeypatch):
    """A record from elsewhere may not read this machine's environment."""
    monkeypatch.setenv("HOSTILE", "secret")
    assert from_yaml(TokenizerConfig, "source: ${oc.env:HOSTILE}").source == "${oc.env:HOSTILE}"
