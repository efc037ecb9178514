"""What `transformers` saved and cannot be read is refused in one line, and never executed."""

import json
import os
import re
import shutil
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertForMaskedLM,
    BertForSequenceClassification,
    RoFormerForMaskedLM,
    RoFormerForSequenceClassification,
)

import roformer
from roformer.errors import InputError
from roformer.models.classifier import Classifier
from roformer.models.encoder import Encoder
from roformer.pipelines.start import load_start
from tests.data.glue_tasks import TOKENIZER
from tests.parity.their_checkpoints import (
    HEADS,
    HIDDEN,
    HOMES,
    POOLER,
    as_pickle,
    configure,
    in_shards,
    refusal,
    rewrite,
    saved,
    start,
    with_buffers,
)


class Payload:
    """A pickle that runs a command when it is opened."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_is_not_executed(zipped, tmp_path):
    saved(BertForMaskedLM, tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    state["bert.embeddings.payload"] = Payload(f"touch {tmp_path / 'executed'}")
    file = tmp_path / "pytorch_model.bin"
    torch.save(state, file, _use_new_zipfile_serialization=zipped)
    assert "nothing of it was executed" in refusal(tmp_path)
    assert not (tmp_path / "executed").exists()
    torch.load(file, weights_only=False)
    assert (tmp_path / "executed").exists()  # it would have been


def second_version(state):
    return {n: t for n, t in state.items() if not n.endswith(".bias") and "LayerNorm" not in n}


@pytest.mark.parametrize("stated", [True, False])
def test_the_second_version_is_refused_by_name(stated, tmp_path):
    """Transformers would fill in what it lacks at random; its config is that of the first version."""
    saved(RoFormerForMaskedLM, tmp_path)
    rewrite(tmp_path, second_version)
    if stated:  # as the published ones say; what says so is enough, whatever the weights
        configure(tmp_path, norm_type="rms_norm", use_bias=False, hidden_act="relu")
        (tmp_path / "model.safetensors").unlink()
    assert "this is RoFormerV2: no biases, RMS norm without weights" in refusal(tmp_path)
    with pytest.raises(InputError, match=r"init_from=.*this is RoFormerV2"):
        start(tmp_path)


def dropped(*ends):
    return lambda state: {n: t for n, t in state.items() if not n.endswith(ends)}


def trained_table(state):
    return with_buffers(state) | {
        "roformer.encoder.embed_positions.weight": torch.randn(9, HIDDEN // HEADS)
    }


BROKEN = {
    "missing in the encoder": (
        dropped("0.attention.self.key.bias", "1.output.dense.weight"),
        "layer.0.attention.self.key.bias, roformer.encoder.layer.1.output.dense.weight, which are "
        "missing",
    ),
    "more than the encoder has": (
        lambda s: s | {"roformer.encoder.layer.0.crossattention.self.query.weight": torch.ones(1)},
        "layer.0.crossattention.self.query.weight, which this encoder does not have",
    ),
    "a layer more": (
        lambda s: s | {n.replace("layer.1.", "layer.2."): t for n, t in s.items()},
        "layer.2.attention.output.LayerNorm.bias",
    ),
    "missing in the head": (
        dropped("transform.dense.bias"),
        "lacks weights of its head: cls.predictions.transform.dense.bias$",
    ),
    "another shape": (
        lambda s: s | {"roformer.encoder.layer.0.output.dense.weight": torch.ones(3, 3)},
        r"layer.0.output.dense.weight is \(3, 3\), but \(64, 128\)",
    ),
    "another table": (trained_table, "embed_positions.weight is not RoFormer's table"),
    "not tied": (
        lambda s: s | {"cls.predictions.decoder.weight": torch.ones(TOKENIZER.size, HIDDEN)},
        "decoder.weight is not embeddings.word_embeddings.weight",
    ),
    "two of one name": (
        lambda s: s | {"module.cls.predictions.bias": torch.ones(TOKENIZER.size)},
        "two different weights for cls.predictions.bias",
    ),
    "quantised": (
        lambda s: {n: t.to(torch.int8) for n, t in s.items()},
        "is int8: quantised weights cannot be read",
    ),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_weights_that_are_not_the_encoders_are_listed(change, message, tmp_path):
    saved(RoFormerForMaskedLM, tmp_path)
    rewrite(tmp_path, change)
    assert re.search(message, refusal(tmp_path))


def test_a_start_needs_no_head_but_the_whole_encoder(tmp_path, capsys):
    """What load_model reads can be fine-tuned; of a base model, heads are new; others are named."""
    models = {}
    for model_class, (home, unused) in HOMES.items():
        saved(model_class, folder := tmp_path / model_class.__name__)
        found = start(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = roformer.load_model(folder).model.state_dict()
        if home is Encoder:
            expected = {f"encoder.{name}": tensor for name, tensor in expected.items()}
        model = Classifier(found.model, found.vocab_size, 2, dropout=0.0)
        line = load_start(found, model)
        models[model_class] = found
        assert all(name in line.partition("not used: ")[2] for name in unused - POOLER)
        for name, tensor in model.state_dict().items():
            if name.startswith("encoder."):
                assert torch.equal(tensor, expected[name]), name
    # A pooler of gelu is not the pooler of a fine-tuning; BERT's is.
    own = models[RoFormerForSequenceClassification].weights
    assert "pooler.weight" not in own and "classifier.dense.weight" in own
    assert "pooler.weight" in models[BertForSequenceClassification].weights
    rewrite(tmp_path / "RoFormerForMaskedLM", dropped("key.bias"))
    with pytest.raises(InputError, match=r"init_from=.*lacks weights of the encoder.*key.bias"):
        start(tmp_path / "RoFormerForMaskedLM")


def cut(file):
    file.write_bytes(file.read_bytes()[:-1000])


def without_weights(folder):
    (folder / "model.safetensors").rename(folder / "tf_model.h5")


def cut_pickle(folder):
    as_pickle(folder)
    cut(folder / "pytorch_model.bin")


def lost_shard(folder):
    in_shards(folder, "model.safetensors", save_file)
    (folder / "model-00002-of-00003.safetensors").unlink()


def strange_shard(folder):
    shutil.copy(folder / "model.safetensors", folder.parent / "elsewhere.safetensors")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"cls.predictions.bias": "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def no_state_dict(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"epoch": torch.ones(1), "model": {}}, folder / "pytorch_model.bin")


FOLDERS = {
    "no config": (lambda f: (f / "config.json").unlink(), "has weights but no config.json"),
    "config cut": (lambda f: (f / "config.json").write_text("{"), "config.json is not JSON"),
    "unknown type": (
        lambda f: configure(f, model_type="gpt2"),
        "of type gpt2 cannot be read: choose one of type bert or roformer",
    ),
    "safetensors cut": (
        lambda f: cut(f / "model.safetensors"),
        "model.safetensors is damaged or cut short",
    ),
    "pickle cut": (cut_pickle, "pytorch_model.bin is damaged"),
    "no state dict": (no_state_dict, "pytorch_model.bin is no state dict"),
    "shard lost": (lost_shard, "names model-00002-of-00003.safetensors, which is missing"),
    "shard elsewhere": (strange_shard, "../elsewhere.safetensors, which is not a file of this"),
    "tensorflow": (without_weights, "neither model.safetensors nor pytorch_model.bin.*tf_model.h5"),
    "activation": (lambda f: configure(f, hidden_act="relu"), "hidden_act=relu cannot be read"),
    "small embeddings": (
        lambda f: configure(f, embedding_size=32),
        "embedding_size=32 cannot be read: this encoder has 64",
    ),
    "rotated values": (lambda f: configure(f, rotary_value=True), "rotary_value=True cannot be"),
    "decoder": (lambda f: configure(f, is_decoder=True), "is_decoder=True cannot be read"),
    "heads": (lambda f: configure(f, num_attention_heads=5), "not divisible by heads=5"),
    "wrong type": (lambda f: configure(f, hidden_size="wide"), "config.json is not sound"),
    "other vocabulary": (
        lambda f: (f / "vocab.txt").write_text(
            (f / "vocab.txt").read_text() + "".join(f"more{i}\n" for i in range(9))
        ),
        "tokenizer has 68 entries, its embeddings 59: they are not of one model",
    ),
}


@pytest.mark.parametrize(("damage", "message"), FOLDERS.values(), ids=FOLDERS)
def test_folders_that_cannot_be_read_are_told_in_one_line(damage, message, tmp_path):
    saved(RoFormerForMaskedLM, tmp_path / "model")
    damage(tmp_path / "model")
    assert re.search(message, refusal(tmp_path / "model"))


def test_paths_that_are_no_model_are_told(tmp_path):
    assert "has neither checkpoints/ nor config.json" in refusal(tmp_path)
    saved(BertForSequenceClassification, tmp_path, problem_type="multi_label_classification")
    assert "labels do not exclude each other" in refusal(tmp_path)
    assert "is a file: give the folder" in refusal(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="is a folder: leave it out"):
        roformer.load_model(tmp_path, revision="main")
