"""Models that `transformers` saved, now or years ago, load as ours or raise a one-line error."""

import json
import os
import re
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
from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError
from roformer.inference.start import find_start, load_start
from roformer.models.classifier import Classifier
from roformer.models.encoder import Encoder, MaskedLM
from roformer.nn.rotary import rotary_table
from tests.data.glue_tasks import TOKENIZER
from tests.trained import config_of

HIDDEN, HEADS, LONGEST = 64, 4, 96
TOLERANCE = 1e-5
POOLER = {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}
TOKENIZER_OF_68 = WordPiece.bert([*TOKENIZER.vocabulary, *(f"more{i}" for i in range(9))], True)
HOMES = {
    BertModel: (Encoder, POOLER),
    BertForMaskedLM: (MaskedLM, set()),
    BertForPreTraining: (MaskedLM, set()),
    BertForSequenceClassification: (Classifier, set()),
    BertForQuestionAnswering: (Encoder, {"qa_outputs.weight", "qa_outputs.bias"}),
    RoFormerModel: (Encoder, set()),
    RoFormerForMaskedLM: (MaskedLM, set()),
    RoFormerForSequenceClassification: (Classifier, set()),
}
"""Their class → ours, and the weights of the file that are not used."""


def saved(model_class, folder, **changes):
    """Save a random model with no weight at its initial 0 or 1, and return it."""
    torch.manual_seed(0)
    config = {
        "vocab_size": TOKENIZER.size,
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
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


def configure(folder, name="config.json", **changes):
    """Change keys of a JSON file; None removes one."""
    content = json.loads((folder / name).read_text()) | changes
    content = {key: value for key, value in content.items() if value is not None}
    (folder / name).write_text(json.dumps(content))


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


def start(source):
    return find_start(str(source), None, config_of(), None, "runs", list)


# --- what is equal -------------------------------------------------------------------------------


@pytest.mark.parametrize("model_class", HOMES, ids=lambda c: c.__name__)
def test_every_class_computes_the_same_and_can_be_started_from(model_class, tmp_path):
    """Unused weights are named once, in one line; a fine-tuning of BERT uses a pooler."""
    theirs = saved(model_class, tmp_path)
    home, unused = HOMES[model_class]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trained = roformer.load_model(tmp_path)
    assert type(trained.model) is home and not trained.model.training
    told = [str(w.message) for w in told if str(w.message).startswith("not used")]
    assert told == [f"not used of {tmp_path}: {', '.join(sorted(unused))}"] * bool(unused)

    ids, types = torch.randint(5, TOKENIZER.size, (3, 70)), torch.randint(2, (3, 70))
    mask = torch.arange(70) < torch.tensor([70, 41, 3])[:, None]
    inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask.long()}
    with torch.no_grad():
        outputs = theirs.base_model(**inputs) if home is Encoder else theirs(**inputs)
        logits = trained.model(ids, token_type_ids=types, attention_mask=mask)
    names = ("last_hidden_state", "prediction_logits", "logits")
    expected = next(outputs[name] for name in names if name in outputs)
    if logits.ndim == 3:
        logits, expected = logits[mask], expected[mask]
    assert (logits - expected).abs().max() <= TOLERANCE
    if model_class is BertForPreTraining:
        with torch.no_grad():
            _, told = trained.model(ids, token_type_ids=types, attention_mask=mask, relation=True)
        assert (told - outputs.seq_relationship_logits).abs().max() <= TOLERANCE

    found = start(tmp_path)
    model = Classifier(found.model, found.vocab_size, 2, dropout=0.0)
    _, left_out, drawn = load_start(found, model)
    assert all(name in left_out for name in unused - POOLER)
    expected = trained.model if home is Encoder else trained.model.encoder
    for name, tensor in expected.state_dict().items():
        assert torch.equal(model.state_dict()[f"encoder.{name}"], tensor), name
    # A pooler of gelu is not the pooler of a fine-tuning; BERT's is.
    has_pooler = model_class in (BertModel, BertForPreTraining, BertForSequenceClassification)
    assert ("pooler.weight" in drawn) != has_pooler
    if model_class is RoFormerForSequenceClassification:
        assert "classifier.dense.weight" in left_out


def test_a_classifier_predicts_labels_of_texts_and_of_pairs(tmp_path):
    names = {0: "bad", 1: "fair", 2: "good"}
    theirs = saved(RoFormerForSequenceClassification, tmp_path, id2label=names)
    trained = load(tmp_path)
    assert trained.labels == list(names.values()) and trained.max_length == LONGEST
    ids = torch.tensor([[TOKENIZER.cls_id, *TOKENIZER.encode("a b c"), TOKENIZER.sep_id]])
    with torch.no_grad():
        expected = theirs(ids).logits.softmax(-1)[0]
    single = trained.predict("a b c")
    assert single.label == names[int(expected.argmax())]
    assert single.score == pytest.approx(float(expected.max()), abs=1e-5)
    assert trained.predict(("a b", "c")).score != single.score
    saved(BertForSequenceClassification, tmp_path / "score", id2label={0: "score"})
    assert load(tmp_path / "score").labels is None


def test_masks_are_filled_with_what_the_model_finds_most_probable(tmp_path):
    """Entries by probability for each [MASK] in order; never a row that only pads the embeddings."""
    theirs = saved(BertForMaskedLM, tmp_path, vocab_size=TOKENIZER.size + 5)
    name = "cls.predictions.bias"
    spare = torch.arange(TOKENIZER.size, TOKENIZER.size + 5)
    rewrite(tmp_path, lambda state: state | {name: state[name].index_fill(0, spare, 50.0)})
    trained = load(tmp_path)
    first, second = trained.fill_mask("ab [MASK] c[MASK].", top=3)
    words = [TOKENIZER.encode(text) for text in ("ab", "c", ".")]
    mask = [TOKENIZER.mask_id]
    ids = [TOKENIZER.cls_id, *words[0], *mask, *words[1], *mask, *words[2], TOKENIZER.sep_id]
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0, :, : TOKENIZER.size]
    for fillings, place in ((first, 3), (second, 5)):
        best = logits[place].softmax(-1).topk(3)
        assert [f.token for f in fillings] == [TOKENIZER.vocabulary[i] for i in best.indices]
        assert [f.probability for f in fillings] == pytest.approx(best.values.tolist(), abs=1e-5)
    for text, top, message in [
        ("no mask", 5, "no \\[MASK\\]"),
        ("[MASK]", 0, "top=0"),
        ("a " * LONGEST + "[MASK]", 5, f"has {LONGEST + 3} tokens, and the model reads {LONGEST}"),
    ]:
        with pytest.raises(InputError, match=message):
            trained.fill_mask(text, top)


# --- older files ---------------------------------------------------------------------------------


def old_names(state):
    """Return the weights under the names of the first versions, which had no prefix either."""
    short = {name.removeprefix("bert.").removeprefix("roformer."): t for name, t in state.items()}
    greek = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    pattern = re.compile("|".join(greek))
    return {pattern.sub(lambda m: greek[m[0]], name): tensor for name, tensor in short.items()}


def prefix_of(state):
    return "bert." if any(name.startswith("bert.") for name in state) else "roformer."


def with_buffers(state):
    """Add the buffers that an older model also saved: ids and the table of sines and cosines."""
    prefix, ids = prefix_of(state), torch.arange(LONGEST)[None]
    made = rotary_table(torch.arange(LONGEST), HIDDEN // HEADS)
    added = {"embeddings.position_ids": ids, "embeddings.token_type_ids": 0 * ids}
    if prefix != "bert.":
        added["encoder.embed_positions.weight"] = torch.cat((made.sin, made.cos), dim=1)
    return state | {f"{prefix}{name}": tensor for name, tensor in added.items()}


def with_copies(state):
    embeddings = f"{prefix_of(state)}embeddings.word_embeddings.weight"
    return state | {
        "cls.predictions.decoder.weight": state[embeddings],
        "cls.predictions.decoder.bias": state["cls.predictions.bias"],
    }


def copies_alone(state):
    """Keep of tied weights the other copy than today's."""
    originals = (f"{prefix_of(state)}embeddings.word_embeddings.weight", "cls.predictions.bias")
    return {name: t for name, t in with_copies(state).items() if name not in originals}


def as_pickle(folder, change=lambda state: state, **options):
    """Store what `change` makes of the weights only as a pickle."""
    state = change(load_file(folder / "model.safetensors"))
    torch.save(state, folder / "pytorch_model.bin", **options)
    (folder / "model.safetensors").unlink()


def in_shards(folder):
    """Cut the weights into three pickles and an index."""
    state, places = load_file(folder / "model.safetensors"), {}
    (folder / "model.safetensors").unlink()
    for shard in range(3):
        file = f"pytorch_model-{shard + 1:05d}-of-00003.bin"
        part = {key: state[key] for key in sorted(state)[shard::3]}
        torch.save(part, folder / file)
        places |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def everything_old(state):
    return old_names(with_buffers(with_copies(state)))


OLDER = {
    "old names, buffers and copies": lambda f: rewrite(f, everything_old),
    "copies alone": lambda f: rewrite(f, copies_alone),
    "half precision": lambda f: rewrite(f, lambda s: {n: t.bfloat16() for n, t in s.items()}),
    "a pickle of torch before 1.6": lambda f: as_pickle(f, _use_new_zipfile_serialization=False),
    "pickles in shards": in_shards,
}


@pytest.mark.parametrize("model_class", [BertForMaskedLM, RoFormerForMaskedLM])
@pytest.mark.parametrize("change", OLDER)
def test_older_and_other_files_give_the_same_weights(model_class, change, tmp_path):
    saved(model_class, tmp_path)
    expected = load(tmp_path).model.state_dict()
    if change == "half precision":
        expected = {name: tensor.bfloat16().float() for name, tensor in expected.items()}
    OLDER[change](tmp_path)
    loaded = load(tmp_path).model.state_dict()
    assert loaded.keys() == expected.keys()
    for name, tensor in loaded.items():
        assert tensor.dtype == torch.float32 and torch.equal(tensor, expected[name])


# --- errors --------------------------------------------------------------------------------------


def dropped(*ends):
    return lambda state: {n: t for n, t in state.items() if not n.endswith(ends)}


def cut(file):
    file.write_bytes(file.read_bytes()[:-1000])


def cut_pickle(folder):
    as_pickle(folder)
    cut(folder / "pytorch_model.bin")


class Code:
    """Makes a folder next to the model when it is unpickled."""

    def __init__(self, folder):
        self.marker = os.fspath(folder.parent / "executed")

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def code_beside(folder):
    """Have the config name a class in a file of the folder."""
    (folder / "evil.py").write_text(f"import os\nos.mkdir({Code(folder).marker!r})\n")
    code = {"AutoConfig": "evil.E", "AutoModel": "evil.E"}
    configure(folder, model_type="evil", auto_map=code)


CODE = r"pytorch_model.bin holds posix.mkdir, and only tensors are read, .*ask for safetensors"
PICKLED = {
    "code": (lambda f: as_pickle(f, lambda s: s | {"x": Code(f)}), CODE),
    "code, old": (
        lambda f: as_pickle(f, lambda s: s | {"x": Code(f)}, _use_new_zipfile_serialization=False),
        CODE,
    ),
    "pickle cut": (cut_pickle, "pytorch_model.bin is damaged or incomplete"),
    "pickled checkpoint": (
        lambda f: as_pickle(f, lambda s: {"state_dict": s, "epoch": 3}),
        "the weights are not of its encoder",
    ),
}


LAYER = "roformer.encoder.layer"
WEIGHTS = {
    "missing in the encoder": (
        dropped("0.attention.self.key.bias", "1.output.dense.weight"),
        f"missing are {LAYER}.0.attention.self.key.bias, {LAYER}.1.output.dense.weight;",
    ),
    "a layer more": (
        lambda s: s | {n.replace("layer.1.", "layer.2."): t for n, t in s.items()},
        "not known are roformer.encoder.layer.2.attention.output.LayerNorm.bias",
    ),
    "missing in the head": (
        dropped("transform.dense.bias"),
        ": lacks weights of its head: cls.predictions.transform.dense.bias$",
    ),
    "another shape": (
        lambda s: s | {f"{LAYER}.0.output.dense.weight": torch.ones(3, 3)},
        r"layer.0.output.dense.weight is \(3, 3\), but \(64, 128\)",
    ),
    "another table": (
        lambda s: s | {"roformer.encoder.embed_positions.weight": torch.randn(LONGEST, 16)},
        "embed_positions.weight is not RoFormer's table",
    ),
    "not tied": (
        lambda s: (
            s
            | {
                "cls.predictions.decoder.weight": torch.ones(TOKENIZER.size, HIDDEN),
                "cls.predictions.decoder.bias": torch.ones(TOKENIZER.size),
            }
        ),
        "decoder.weight is not tied to .*, and cls.predictions.decoder.bias is not tied to cls.p",
    ),
}
SETTINGS = {
    "model_type": ("gpt2", "of type gpt2 cannot be read: choose one of type bert or roformer"),
    "quantization_config": ({"quant_method": "bitsandbytes"}, "quantization_config=.*cannot be"),
    "hidden_size": ("wide", "config.json is not sound"),
}
FOLDERS = {
    "code beside the config": (code_beside, "a model of type evil cannot be read"),
    "config cut": (lambda f: (f / "config.json").write_text("{"), "config.json is not JSON"),
    "weights cut": (lambda f: cut(f / "model.safetensors"), "is damaged or incomplete"),
    "other framework": (
        lambda f: (f / "model.safetensors").rename(f / "tf_model.h5"),
        "there is no model.safetensors and no pytorch_model.bin, .* but .*tf_model.h5",
    ),
    "vocabulary of another model": (
        lambda f: TOKENIZER_OF_68.save(f),
        "tokenizer has 68 entries, its embeddings 59: they are not of one model",
    ),
}


REFUSED = {name: (lambda f, c=c: rewrite(f, c), told) for name, (c, told) in WEIGHTS.items()}
for key, (value, told) in SETTINGS.items():
    REFUSED[key] = (lambda f, changed={key: value}: configure(f, **changed), told)
REFUSED |= FOLDERS | PICKLED


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_told_in_one_line(name, tmp_path):
    """And of a start alike, but for its head, which it does not need."""
    change, message = REFUSED[name]
    saved(RoFormerForMaskedLM, folder := tmp_path / "model")
    change(folder)
    assert re.search(message, refusal(folder))
    if name in ("missing in the head", "not tied"):
        assert start(folder).weights
    else:
        with pytest.raises(InputError, match=r"^init_from="):
            start(folder)
    assert not (tmp_path / "executed").exists()


def test_paths_that_are_no_model_are_told(tmp_path):
    assert "has neither checkpoints/ nor config.json" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert "names no model_type" in refusal(tmp_path)
    saved(BertForSequenceClassification, tmp_path, problem_type="multi_label_classification")
    assert "labels do not exclude each other" in refusal(tmp_path)
    saved(BertForSequenceClassification, tmp_path, problem_type="regression", num_labels=3)
    assert "predicts 3 scores of a text" in refusal(tmp_path)
    assert "is a file: give the folder" in refusal(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="is no Hub id: leave out the revision main"):
        roformer.load_model(tmp_path, revision="main")


# --- tokenizers ----------------------------------------------------------------------------------


def chinese_words(folder):
    """Leave the class unsaid, with a vocabulary that holds a word of two characters."""
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "tokenizer.json").unlink()
    lines = (folder / "vocab.txt").read_text().splitlines()
    lines[-1] = "\u5929\u6c14"
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


OTHER_TOKENIZERS = {
    "words, cut into characters": (
        lambda f: (chinese_words(f), configure(f, tokenizer_class="BertTokenizer")),
        "tokenizer cuts Chinese into characters, but its vocabulary has words",
    ),
    "none": (
        lambda f: [(f / name).unlink() for name in ("vocab.txt", "tokenizer.json")],
        "has no tokenizer.json and no vocab.txt: only WordPiece is read",
    ),
}


@pytest.mark.parametrize(("change", "message"), OTHER_TOKENIZERS.values(), ids=OTHER_TOKENIZERS)
def test_texts_are_never_cut_by_another_tokenizer(change, message, tmp_path):
    """The model loads and computes; what needs texts names the tokenizer that is not here."""
    theirs = saved(RoFormerForMaskedLM, tmp_path)
    change(tmp_path)
    trained = load(tmp_path)
    ids = torch.randint(5, TOKENIZER.size, (1, 9))
    with torch.no_grad():
        assert (trained.model(ids) - theirs(ids).logits).abs().max() <= TOLERANCE
    with pytest.raises(InputError, match=message):
        trained.fill_mask("[MASK]")
    with pytest.raises(InputError, match=f"cannot be trained on texts: .*{message}"):
        start(tmp_path)


@pytest.mark.parametrize("stated", [True, False])
def test_models_of_words_read_texts(stated, tmp_path):
    """WoBERT and RoFormer: a word of the vocabulary is one token, whether the class is named or not."""
    saved(BertForMaskedLM, tmp_path)
    assert load(tmp_path).tokenizer.fingerprint == TOKENIZER.fingerprint
    chinese_words(tmp_path)
    if stated:
        configure(tmp_path, tokenizer_class="RoFormerTokenizerFast")
    trained = load(tmp_path)
    assert trained.tokenizer.words == start(tmp_path).tokenizer.words == "jieba"
    word, letter = TOKENIZER.size - 1, TOKENIZER.encode("a")[0]
    assert trained.tokenizer.encode("\u5929\u6c14a") == [word, letter]
    assert trained.fill_mask("\u5929\u6c14[MASK]")


# --- the Hub -------------------------------------------------------------------------------------


def test_an_offline_machine_without_the_model_says_so(monkeypatch, tmp_path):
    """Through the library itself; the other failures of the Hub are in tests/hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    told = refusal("owner/name", revision="v1")
    assert "cannot be read as a Hugging Face model at revision v1: no such folder here" in told
    assert "cannot be reached, and the cache does not have it" in told and "OFFLINE=1" in told
    with pytest.raises(InputError, match="init_from=owner/name cannot be read"):
        start("owner/name")
