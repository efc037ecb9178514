"""What the tests of checkpoints of others share: how one is saved, changed, read and refused."""

import json
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertForMaskedLM,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
    RoFormerForMaskedLM,
    RoFormerForSequenceClassification,
    RoFormerModel,
)

import roformer
from roformer.config import schema
from roformer.config.attention import SoftmaxAttention
from roformer.config.position import Rotary
from roformer.errors import InputError
from roformer.inference.start import find_start
from roformer.models.classifier import Classifier
from roformer.models.encoder import Encoder, MaskedLM
from roformer.nn.rotary import rotary_table
from tests.data.glue_tasks import TOKENIZER

LAYERS, HIDDEN, HEADS, LONGEST = 2, 64, 4, 96
TOLERANCE = 1e-5
POOLER = {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}
NEXT_SENTENCE = {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}
ANSWERS = {"qa_outputs.weight", "qa_outputs.bias"}
HOMES = {
    BertModel: (Encoder, POOLER),
    BertForMaskedLM: (MaskedLM, set()),
    BertForPreTraining: (MaskedLM, POOLER | NEXT_SENTENCE),
    BertForSequenceClassification: (Classifier, set()),
    BertForQuestionAnswering: (Encoder, ANSWERS),
    RoFormerModel: (Encoder, set()),
    RoFormerForMaskedLM: (MaskedLM, set()),
    RoFormerForSequenceClassification: (Classifier, set()),
}
"""Their class → ours, and what is not used of it."""
MASKED_LMS = [BertForMaskedLM, RoFormerForMaskedLM]
CONFIG = schema.EncoderConfig(
    name="ours",
    size="test",
    layers=1,
    hidden_size=HIDDEN,
    heads=HEADS,
    intermediate_size=HIDDEN,
    position=Rotary(),
    attention=SoftmaxAttention(),
)


def saved(model_class, folder, **changes):
    """Save a random model with no weight at its initial 0 or 1, and return it."""
    torch.manual_seed(0)
    config = {
        "vocab_size": TOKENIZER.size,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * HIDDEN,
        "max_position_embeddings": LONGEST,
        "attn_implementation": "eager",
    }
    model = model_class(model_class.config_class(**{**config, **changes})).eval()
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    TOKENIZER.save(folder)
    return model


def rewrite(folder, change):
    """Replace the stored weights by what `change` makes of them."""
    state = change(load_file(folder / "model.safetensors"))
    save_file({n: t.clone().contiguous() for n, t in state.items()}, folder / "model.safetensors")


def configure(folder, **changes):
    """Change keys of config.json; None removes one."""
    content = json.loads((folder / "config.json").read_text()) | changes
    content = {key: value for key, value in content.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(content))


def load(source, **more):
    """Load a model of which everything is used."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return roformer.load_model(source, **more)


def refusal(source, **more):
    with pytest.raises(InputError) as refused:
        roformer.load_model(source, **more)
    assert "\n" not in str(refused.value) and str(refused.value).startswith(str(source))
    return str(refused.value)


def start(source, revision=None):
    """Read a model as the start of a fine-tuning."""
    return find_start(str(source), revision, CONFIG, None, "runs", list)


def prefix_of(state):
    return "bert." if any(name.startswith("bert.") for name in state) else "roformer."


def with_buffers(state):
    """Add what an older model saved besides: ids and the table of sines and cosines."""
    prefix, ids = prefix_of(state), torch.arange(LONGEST)[None]
    made = rotary_table(torch.arange(LONGEST), HIDDEN // HEADS)
    table = {} if prefix == "bert." else {f"{prefix}encoder.embed_positions.weight": made}
    table = {name: torch.cat((made.sin, made.cos), dim=1) for name in table}
    ids = {f"{prefix}embeddings.position_ids": ids, f"{prefix}embeddings.token_type_ids": 0 * ids}
    return state | ids | table


def as_pickle(folder):
    """Store the weights as a pickle alone."""
    state = load_file(folder / "model.safetensors")
    torch.save(state, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def in_shards(folder):
    """Cut the weights into three files and an index."""
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {}
    for shard in range(3):
        file = f"model-{shard + 1:05d}-of-00003.safetensors"
        part = {key: state[key] for key in sorted(state)[shard::3]}
        save_file(part, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
