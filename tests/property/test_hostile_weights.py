"""Weights, arrays and tokenizers that are pickles, or of models that no memory holds.

Nothing planted is ever executed, and a model is not built before its weights are known to fill it.
"""

import json
import os
import pickle

import numpy as np
import pytest
import torch
from transformers import BertConfig

from roformer.errors import InputError
from roformer.inference.load import load_model
from roformer.inference.start import find_start
from roformer.training import checkpoint
from tests.data.glue_tasks import TOKENIZER
from tests.property.hostile import read_or_refused
from tests.trained import config_of, run_of

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (os.fspath(self.marker),)


@pytest.fixture
def marker(tmp_path):
    """Return a path that exists at the end only if a payload was executed."""
    yield tmp_path / "executed"
    assert not (tmp_path / "executed").exists()


def pickles(marker):
    """Yield the payload in each form in which weights and arrays are pickled."""
    yield pickle.dumps({"weights": Payload(marker)})
    file = marker.parent / "saved.bin"
    for zipped in (True, False):
        torch.save({"w": Payload(marker)}, file, _use_new_zipfile_serialization=zipped)
        yield file.read_bytes()
    with file.open("wb") as array:
        np.save(array, np.array([Payload(marker)], dtype=object), allow_pickle=True)
    yield file.read_bytes()


def start(path):
    return find_start(str(path), None, config_of(), None, "runs", list)


def test_weights_that_are_a_pickle_are_not_opened(tmp_path, marker):
    run = run_of(tmp_path / "run")
    folder = run / "checkpoints" / "step_00000008"
    assert load_model(run).tokenizer.size == start(run).vocab_size
    for content in pickles(marker):
        (folder / checkpoint.MODEL).write_bytes(content)
        (folder / checkpoint.COMPLETE).unlink()
        checkpoint.complete(
            folder
        )  # a changed checkpoint that agrees with what it says of its files
        for opened in (load_model, start):
            assert read_or_refused(lambda f=opened: f(run), folder, run) is None


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "tokenizer.pkl"])
def test_a_hugging_face_folder_of_pickles_is_refused(tmp_path, marker, name):
    folder = tmp_path / "hub"
    BertConfig(vocab_size=TOKENIZER.size, intermediate_size=8, **SIZES).save_pretrained(folder)
    TOKENIZER.save(folder)
    for content in pickles(marker):
        (folder / name).write_bytes(content)
        assert read_or_refused(lambda: start(folder), f"init_from={folder}") is None


def test_code_beside_a_hugging_face_model_is_not_run(tmp_path, marker):
    (folder := tmp_path / "hub").mkdir()
    (folder / "evil.py").write_text(f"import os\nos.mkdir({os.fspath(marker)!r})\n")
    code = {"AutoConfig": "evil.E", "AutoModel": "evil.E"}
    for model_type in ("bert", "evil"):
        content = {"model_type": model_type, "auto_map": code}
        (folder / "config.json").write_text(json.dumps(content))
        assert read_or_refused(lambda: start(folder), f"init_from={folder}") is None


def test_a_hugging_face_model_that_its_weights_do_not_fill_is_not_built(tmp_path):
    TOKENIZER.save(tmp_path)
    BertConfig(vocab_size=10**12, **SIZES).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    with pytest.raises(InputError, match="which is more than its weights have bytes"):
        start(tmp_path)
