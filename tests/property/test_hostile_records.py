"""Runs of someone else: a config is only text, and a checkpoint only tensors."""

import os
import pickle

import numpy as np
import pytest
import torch

from roformer.config.build import from_yaml
from roformer.config.schema import TokenizerConfig
from roformer.errors import InputError
from roformer.inference.load import load_model
from roformer.inference.start import find_start
from roformer.report.runs import RecordError, read_yaml_file
from roformer.training import checkpoint
from tests.property.hostile import read_or_refused
from tests.trained import config_of, run_of

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


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker):
        self.marker = os.fspath(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def pickles(marker):
    """Yield the payload in each form in which weights and arrays are pickled."""
    yield pickle.dumps({"weights": Payload(marker)})
    file = marker.with_name("saved.bin")
    for zipped in (True, False):
        torch.save({"w": Payload(marker)}, file, _use_new_zipfile_serialization=zipped)
        yield file.read_bytes()
    with file.open("wb") as array:
        np.save(array, np.array([Payload(marker)], dtype=object), allow_pickle=True)
    yield file.read_bytes()


def start(path):
    return find_start(str(path), None, config_of(), None, "runs", list)


def test_weights_that_are_a_pickle_are_not_opened(tmp_path):
    run, marker = run_of(tmp_path / "run"), tmp_path / "executed"
    folder = run / "checkpoints" / "step_00000008"
    assert load_model(run).tokenizer.size == start(run).vocab_size
    for content in pickles(marker):
        (folder / checkpoint.MODEL).write_bytes(content)
        (folder / checkpoint.COMPLETE).unlink()
        checkpoint.complete(folder)  # its checksums are those of the changed file
        for opened in (load_model, start):
            assert read_or_refused(lambda f=opened: f(run), folder, run) is None
    assert not marker.exists()
