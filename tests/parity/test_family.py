"""The published RoFormer family: folders with the keys of each released config.json, at tiny sizes.

The weights are in a pytorch_model.bin, as in the repositories of junnyu/*; the table in
docs/interop.md says where the shapes come from.
"""

import json
import math
from dataclasses import replace

import huggingface_hub
import pytest
import torch
from transformers import AutoConfig, AutoModelForMaskedLM

import roformer
from roformer.config.position import Learned
from roformer.errors import InputError
from roformer.inference.export import export
from roformer.inference.start import load_start
from roformer.models.encoder import Encoder, MaskedLM
from tests.data.glue_tasks import TOKENIZER
from tests.hub.repositories import bert
from tests.parity.test_hugging_face import configure, load, refusal, start
from tests.trained import relative

TOLERANCE = 1e-5
LENGTH = 64
MASKED = {"architectures": ["RoFormerForMaskedLM"]}
SMALL_ENGLISH = {"rotary_value": True, "max_position_embeddings": LENGTH, "embedding_size": 24}
SIM = {
    "architectures": ["RoFormerForCausalLM"],
    "embedding_size": 32,
    "max_position_embeddings": LENGTH,
    "directionality": "bidi",
    "is_decoder": True,
    "eos_token_id": 3,
    "pooler_activation": "linear",
}
V2 = {
    **MASKED,
    "embedding_size": 32,
    "max_position_embeddings": LENGTH,
    "hidden_act": "relu",
    "norm_type": "rms_norm",
    "use_bias": False,
    "rotary_value": False,
}
FAMILY = {
    # and roformer_chinese_small, and, of single characters, roformer_chinese_char_small
    "roformer_chinese_base": ({**MASKED, "embedding_size": 32}, "RoFormerTokenizer"),
    "roformer_chinese_char_base": (MASKED, "BertTokenizer"),
    "roformer_small_discriminator": (
        {**SMALL_ENGLISH, "architectures": ["RoFormerModel"]},
        "ElectraTokenizer",
    ),
    "roformer_small_generator": (
        {
            **SMALL_ENGLISH,
            "architectures": ["RoFormerMaskedLM"],
            "hidden_size": 16,
            "num_attention_heads": 1,
        },
        "ElectraTokenizer",
    ),
    "roformer_chinese_sim_char_base": (SIM, None),
    "roformer_v2_chinese_char_base": (V2, "BertTokenizer"),
    "wobert_chinese_base": (
        {
            "model_type": "bert",
            "architectures": ["BertForMaskedLM"],
            "position_embedding_type": "absolute",
            "pooler_type": "first_token_transform",
            "max_position_embeddings": LENGTH,
        },
        "RoFormerTokenizer",
    ),
}
"""Repository of junnyu → its config.json except sizes, and its tokenizer_class, if named."""
ENCODERS = [name for name in FAMILY if "sim" not in name and "v2" not in name]


def settings_of(name):
    return {
        "model_type": "roformer",
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 32,
        "initializer_range": 0.02,
        "intermediate_size": 48,
        "layer_norm_eps": 1e-12,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "pad_token_id": 0,
        "type_vocab_size": 2,
        "vocab_size": TOKENIZER.size,
        **FAMILY[name][0],
    }


def stand_in(name, folder):
    """Write a repository's files with random weights; return its model in `transformers`, but of V2."""
    settings = settings_of(name)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "vocab.txt").write_text("\n".join(TOKENIZER.vocabulary) + "\n")
    if (tokenizer := FAMILY[name][1]) is not None:
        stated = {"do_lower_case": True, "strip_accents": None, "tokenizer_class": tokenizer}
        (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    torch.manual_seed(0)
    if "v2" in name:
        torch.save(second_version(settings), folder / "pytorch_model.bin")
        return None
    own = {key: value for key, value in settings.items() if key != "is_decoder"}
    config = AutoConfig.for_model(**own, attn_implementation="eager")
    model = AutoModelForMaskedLM.from_config(config).eval()
    for parameter_name, parameter in model.named_parameters():
        if "embed_positions" not in parameter_name:
            parameter.data += 0.2 * torch.randn_like(parameter)
    headless = settings["architectures"] == ["RoFormerModel"]
    state = {n: t for n, t in model.state_dict().items() if not (headless and n.startswith("cls."))}
    if "sim" in name:
        state["roformer.pooler.dense.weight"] = torch.randn(32, 32)
        state["roformer.pooler.dense.bias"] = torch.randn(32)
    torch.save(state, folder / "pytorch_model.bin")
    return model


def inputs(length=40):
    torch.manual_seed(1)
    ids, types = torch.randint(5, TOKENIZER.size, (3, length)), torch.randint(2, (3, length))
    return ids, types, torch.arange(length) < torch.tensor([length, 21, 3])[:, None]


# --- what opens ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCODERS)
def test_a_stand_in_computes_what_transformers_does(name, tmp_path):
    """Logits, or hidden states, to 1e-5; texts are read; exported again it has equal logits."""
    theirs = stand_in(name, folder := tmp_path / name)
    trained = load(folder)
    headless = FAMILY[name][0]["architectures"] == ["RoFormerModel"]
    assert type(trained.model) is (Encoder if headless else MaskedLM)
    ids, types, mask = inputs()
    given = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask.long()}
    with torch.no_grad():
        wanted = theirs.base_model(**given)[0] if headless else theirs(**given).logits
        found = trained.model(ids, token_type_ids=types, attention_mask=mask)
    assert wanted.std() > 0.1 and relative(found[mask], wanted[mask]) <= TOLERANCE
    assert trained.tokenizer.encode("a b") == TOKENIZER.encode("a b")

    if not headless:
        assert export(folder, tmp_path / "again").kind == theirs.config.model_type
        assert (tmp_path / "again" / "model.safetensors").is_file()
        again = AutoModelForMaskedLM.from_pretrained(tmp_path / "again")
        with torch.no_grad():
            assert relative(again(**given).logits[mask], wanted[mask]) <= TOLERANCE


def test_a_stand_in_takes_learned_positions_of_the_size_of_its_embeddings(tmp_path):
    stand_in("roformer_small_generator", folder := tmp_path / "small")
    begun = start(folder)
    config = replace(begun.model, position=Learned(max_positions=LENGTH))
    model = MaskedLM(config, begun.vocab_size)
    lines = load_start(begun, model)
    assert "dropped: nothing" in lines and "drawn: encoder.position.table" in "".join(lines)
    assert model.encoder.position.table.shape == (LENGTH, config.embedding_width)
    assert model(inputs()[0]).isfinite().all()


def test_a_sim_model_is_refused_as_a_decoder_and_opens_as_an_encoder(tmp_path):
    """Its repository calls it a decoder; with `is_decoder` false it is read both ways, as an encoder."""
    theirs = stand_in("roformer_chinese_sim_char_base", folder := tmp_path / "sim")
    assert "a roformer model with is_decoder=True cannot be read" in refusal(folder)
    configure(folder, is_decoder=False)
    with pytest.warns(UserWarning, match="not used .*roformer.pooler.dense.bias, roformer.pooler"):
        trained = roformer.load_model(folder)
    ids, types, mask = inputs()
    given = {"token_type_ids": types, "attention_mask": mask}
    with torch.no_grad():
        wanted = theirs.roformer(ids, token_type_ids=types, attention_mask=mask.long())[0]
        assert relative(trained.model(ids, **given)[mask], wanted[mask]) <= TOLERANCE


# --- RoFormerV2 ----------------------------------------------------------------------------------


def second_version(settings):
    """Return random weights by the names of the published files, which have no bias and no norm."""
    size, inner = settings["hidden_size"], settings["intermediate_size"]
    shapes = {
        "roformer.embeddings.word_embeddings": (settings["vocab_size"], size),
        "roformer.embeddings.token_type_embeddings": (2, size),
    }
    for layer in range(settings["num_hidden_layers"]):
        prefix = f"roformer.encoder.layer.{layer}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{prefix}.attention.{name}"] = (size, size)
        shapes[f"{prefix}.intermediate.dense"] = (inner, size)
        shapes[f"{prefix}.output.dense"] = (size, inner)
    state = {
        f"{name}.weight": torch.randn(shape) * 1.5 / math.sqrt(shape[-1])
        for name, shape in shapes.items()
    }
    words = state["roformer.embeddings.word_embeddings.weight"]
    return state | {"cls.predictions.decoder.weight": words}


def reference(state, heads, ids, types, mask, eps=1e-12):
    """Return RoFormerV2's logits in float64, written down from the authors' bert4keras.

    x / √(mean x² + eps) after the embeddings and after each residual sum, rotations as complex numbers,
    no bias anywhere, ReLU, and the products with the embeddings as logits.
    """
    state = {name.removesuffix(".weight"): tensor.double() for name, tensor in state.items()}

    def norm(x):
        return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()

    def by_head(x):
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    def rotated(x):
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        frequencies = 10000.0 ** -(torch.arange(pairs.shape[-1]).double() / pairs.shape[-1])
        angles = torch.arange(x.shape[-2])[:, None] * frequencies
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

    words = state["roformer.embeddings.word_embeddings"]
    x = norm(words[ids] + state["roformer.embeddings.token_type_embeddings"][types])
    for layer in range(2):
        prefix = f"roformer.encoder.layer.{layer}"
        parts = (f"{prefix}.attention.self.{part}" for part in ("query", "key", "value"))
        q, k, v = (by_head(x @ state[part].T) for part in parts)
        scores = rotated(q) @ rotated(k).mT / math.sqrt(q.shape[-1])
        shares = scores.masked_fill(~mask[:, None, None], -math.inf).softmax(-1)
        y = (shares @ v).transpose(1, 2).flatten(-2)
        x = norm(x + y @ state[f"{prefix}.attention.output.dense"].T)
        inner = (x @ state[f"{prefix}.intermediate.dense"].T).relu()
        x = norm(x + inner @ state[f"{prefix}.output.dense"].T)
    return x @ words.T


def test_the_second_version_computes_its_definition(tmp_path):
    """Catches a norm about the mean, another eps, GELU, a bias, a head before the logits."""
    stand_in("roformer_v2_chinese_char_base", folder := tmp_path / "v2")
    trained = load(folder)
    assert not [name for name in trained.model.state_dict() if "bias" in name or "norm" in name]
    state = torch.load(folder / "pytorch_model.bin", weights_only=True)
    ids, types, mask = inputs()
    wanted = reference(state, 2, ids, types, mask)[mask]
    with torch.no_grad():
        found = trained.model(ids, token_type_ids=types, attention_mask=mask)[mask]
        assert relative(found, wanted) <= TOLERANCE
    assert trained.fill_mask("a [MASK] b", 1)[0]
    with pytest.raises(InputError, match="bert and roformer have biases and norms with weights"):
        export(folder, tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_bias": True}, "a RoFormerV2 model with use_bias=True cannot be read"),
        ({"hidden_act": "gelu"}, "a RoFormerV2 model with hidden_act=gelu cannot be read"),
        ({"architectures": ["RoFormerForSequenceClassification"]}, "its head is not read"),
    ],
)
def test_what_the_second_version_is_not_is_refused(changes, message, tmp_path):
    stand_in("roformer_v2_chinese_char_base", folder := tmp_path / "v2")
    configure(folder, **changes)
    assert message in refusal(folder)


# --- the Hub -------------------------------------------------------------------------------------


def test_a_pickle_is_fetched_where_there_are_no_safetensors_alone(hub, tmp_path, monkeypatch):
    """The pickle is of the other files' commit, and is found again without a network."""
    theirs = stand_in("roformer_small_generator", folder := tmp_path / "model")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    ids, first, second = inputs()[0], "a" * 40, "b" * 40
    hub.push("org/pickle", files | {"tf_model.h5": b"the same"}, first)
    hub.push("org/both", bert(), second)
    trained = roformer.load_model("org/pickle", revision=first)
    wanted = {"config.json", "vocab.txt", "tokenizer_config.json", "pytorch_model.bin"}
    assert hub.fetched("org/pickle") == {f"{first}/{name}" for name in wanted}
    roformer.load_model("org/both")
    assert f"{second}/model.safetensors" in hub.fetched("org/both")
    assert not hub.asked("org/both/resolve/.*bin")
    asked = len(hub.log)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    again = roformer.load_model("org/pickle", revision=first)
    assert len(hub.log) == asked
    with torch.no_grad():
        for model in (trained.model, again.model):
            assert relative(model(ids), theirs(ids).logits) <= TOLERANCE
    with pytest.raises(InputError, match="org/both cannot be read"):
        roformer.load_model("org/both", revision="c" * 40)
