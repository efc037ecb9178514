"""What `transformers` saved and cannot be read is refused in one line, and never executed."""

import re
import warnings

import pytest
import torch
from transformers import (
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    RoFormerForMaskedLM,
    RoFormerForSequenceClassification,
)

import roformer
from roformer.errors import InputError
from roformer.inference.start import load_start
from roformer.models.classifier import Classifier
from roformer.models.encoder import Encoder
from tests.data.glue_tasks import TOKENIZER
from tests.parity.hugging_face_models import (
    HEADS,
    HIDDEN,
    HOMES,
    LONGEST,
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
        "roformer.encoder.embed_positions.weight": torch.randn(LONGEST, HIDDEN // HEADS)
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
        ": lacks weights of its head: cls.predictions.transform.dense.bias$",
    ),
    "another shape": (
        lambda s: s | {"roformer.encoder.layer.0.output.dense.weight": torch.ones(3, 3)},
        r"layer.0.output.dense.weight is \(3, 3\), but \(64, 128\)",
    ),
    "another table": (trained_table, "embed_positions.weight is not RoFormer's table"),
    "not tied": (
        lambda s: s | {"cls.predictions.decoder.weight": torch.ones(TOKENIZER.size, HIDDEN)},
        "decoder.weight is not tied to roformer.embeddings.word_embeddings.weight",
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
    roformer_classifier = models[RoFormerForSequenceClassification]
    assert "pooler.weight" not in roformer_classifier.weights
    assert "classifier.dense.weight" in roformer_classifier.unused
    for model_class in (BertForSequenceClassification, BertForPreTraining, BertModel):
        assert "pooler.weight" in models[model_class].weights
    rewrite(tmp_path / "RoFormerForMaskedLM", dropped("key.bias"))
    with pytest.raises(InputError, match=r"init_from=.*lacks weights of the encoder.*key.bias"):
        start(tmp_path / "RoFormerForMaskedLM")


def cut(file):
    file.write_bytes(file.read_bytes()[:-1000])


def without_weights(folder):
    (folder / "model.safetensors").rename(folder / "tf_model.h5")


def lost_shard(folder):
    in_shards(folder)
    (folder / "model-00002-of-00003.safetensors").unlink()


FOLDERS = {
    "no config": (lambda f: (f / "config.json").unlink(), "has weights but no config.json"),
    "config cut": (lambda f: (f / "config.json").write_text("{"), "config.json is not JSON"),
    "unknown type": (
        lambda f: configure(f, model_type="gpt2"),
        "of type gpt2 cannot be read: choose one of type bert or roformer",
    ),
    "safetensors cut": (
        lambda f: cut(f / "model.safetensors"),
        "model.safetensors is damaged or incomplete",
    ),
    "shard lost": (lost_shard, "damaged or incomplete .*model-00002-of-00003.safetensors"),
    "pickle": (as_pickle, r"no model.safetensors, .*\(there is pytorch_model.bin\)"),
    "tensorflow": (without_weights, r"no model.safetensors, .*\(there is tf_model.h5\)"),
    "quantised": (
        lambda f: configure(f, quantization_config={"quant_method": "bitsandbytes"}),
        "quantised weights cannot be read",
    ),
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
