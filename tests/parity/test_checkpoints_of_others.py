"""What `transformers` saved, now or years ago, loads as ours: equal weights and logits, or a refusal."""

import json
import os
import re
import shutil
import warnings

import huggingface_hub
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
    RoFormerTokenizer,
)

import roformer
from roformer.config import schema
from roformer.config.attention import SoftmaxAttention
from roformer.config.position import Rotary
from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError
from roformer.models.classifier import Classifier
from roformer.models.encoder import Encoder, MaskedLM
from roformer.models.hf import ROFORMER_CLASSIFIER, their_names
from roformer.nn.rotary import rotary_table
from roformer.pipelines.start import find_start, load_start
from tests.unit.glue_tasks import COMMIT, TOKENIZER

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
each_class = pytest.mark.parametrize("model_class", HOMES, ids=lambda c: c.__name__)
each_masked_lm = pytest.mark.parametrize("model_class", MASKED_LMS, ids=lambda c: c.__name__)


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


# --- every architecture --------------------------------------------------------------------------


@each_class
def test_every_architecture_computes_the_same(model_class, tmp_path):
    theirs = saved(model_class, tmp_path)
    home, unused = HOMES[model_class]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trained = roformer.load_model(tmp_path)
    assert type(trained.model) is home and not trained.model.training
    assert set(trained.unused) == unused
    told = [str(w.message) for w in told if str(w.message).startswith("not used")]
    assert len(told) == bool(unused) and all(name in told[0] for name in unused)

    ids = torch.randint(5, TOKENIZER.size, (3, 70))
    types = torch.randint(2, (3, 70))
    mask = torch.arange(70) < torch.tensor([70, 41, 3])[:, None]
    inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask.long()}
    with torch.no_grad():
        outputs = theirs.base_model(**inputs) if home is Encoder else theirs(**inputs)
        logits = trained.model(ids, token_type_ids=types, attention_mask=mask)
    names = ("last_hidden_state", "prediction_logits", "logits")
    expected = next(outputs[name] for name in names if name in outputs)
    if logits.ndim == 3:
        logits, expected = logits[mask], expected[mask]
    difference = (logits - expected).abs().max().item()
    print(f"{model_class.__name__}: largest difference {difference:.1e}")
    assert difference <= TOLERANCE


@each_class
@pytest.mark.filterwarnings("ignore:not used")
def test_every_weight_is_bit_equal(model_class, tmp_path):
    """Query, key and value are separate there; what is left over is derived or said to be unused."""
    kind = model_class.config_class.model_type
    theirs = saved(model_class, tmp_path).state_dict()
    if model_class in (BertModel, RoFormerModel):
        theirs = {f"{kind}.{name}": tensor for name, tensor in theirs.items()}
    trained = roformer.load_model(tmp_path)
    used = set()
    for name, tensor in trained.model.state_dict().items():
        name = f"encoder.{name}" if isinstance(trained.model, Encoder) else name
        names = their_names(name, kind)
        if model_class is RoFormerForSequenceClassification:
            names = ROFORMER_CLASSIFIER.get(name, names)
        for their, part in zip(names, tensor.chunk(len(names)), strict=True):
            assert torch.equal(part, theirs[their]), name
        used |= set(names)
    left = {name for name in theirs if not any(d in name for d in ("embed_positions", ".decoder."))}
    assert left == used | set(trained.unused)


def test_a_classifier_predicts_labels_of_texts_and_of_pairs(tmp_path):
    names = {0: "bad", 1: "fair", 2: "good"}
    theirs = saved(RoFormerForSequenceClassification, tmp_path, id2label=names)
    trained = load(tmp_path)
    assert trained.labels == list(names.values()) and trained.max_length == LONGEST
    ids = torch.tensor([[TOKENIZER.cls_id, *TOKENIZER.encode("a b c"), TOKENIZER.sep_id]])
    with torch.no_grad():
        expected = theirs(ids).logits.softmax(-1)[0]
    (single,) = trained.predict(["a b c"])
    assert single.label == names[int(expected.argmax())]
    assert single.score == pytest.approx(float(expected.max()), abs=1e-5)
    (pair,) = trained.predict([("a b", "c")])
    assert pair.score != single.score
    with pytest.raises(InputError, match="takes single texts"):
        list(trained.predict(["a", ("b", "c")]))
    saved(BertForSequenceClassification, tmp_path / "score", id2label={0: "score"})
    assert load(tmp_path / "score").labels is None


def test_masks_are_filled_with_what_the_model_finds_most_probable(tmp_path):
    """Entries by probability for each [MASK] in order; never a row that only pads the embeddings."""
    theirs = saved(BertForMaskedLM, tmp_path, vocab_size=TOKENIZER.size + 5)
    rewrite(
        tmp_path,
        lambda state: (
            state
            | {
                "cls.predictions.bias": state["cls.predictions.bias"].index_fill(
                    0, torch.arange(TOKENIZER.size, TOKENIZER.size + 5), 50.0
                )
            }
        ),
    )
    first, second = load(tmp_path).fill_mask("ab [MASK] c[MASK].", top=3)
    words = [TOKENIZER.encode(text) for text in ("ab", "c", ".")]
    mask = [TOKENIZER.mask_id]
    ids = [TOKENIZER.cls_id, *words[0], *mask, *words[1], *mask, *words[2], TOKENIZER.sep_id]
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0, :, : TOKENIZER.size]
    for fillings, place in ((first, 3), (second, 5)):
        best = logits[place].softmax(-1).topk(3)
        assert [f.token for f in fillings] == [TOKENIZER.vocabulary[i] for i in best.indices]
        assert [f.probability for f in fillings] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_masks_that_cannot_be_filled_are_refused(tmp_path):
    saved(BertForMaskedLM, tmp_path)
    trained = load(tmp_path)
    for text, top, message in [
        ("no mask", 5, "no \\[MASK\\]"),
        ("[MASK]", 0, "top=0"),
        ("a " * LONGEST + "[MASK]", 5, f"has {LONGEST + 3} tokens, and the model reads {LONGEST}"),
    ]:
        with pytest.raises(InputError, match=message):
            trained.fill_mask(text, top)
    saved(BertForSequenceClassification, tmp_path / "classifier")
    with pytest.raises(InputError, match="predicts no tokens"):
        load(tmp_path / "classifier").fill_mask("[MASK]")


# --- older checkpoints ---------------------------------------------------------------------------


def old_norms(state):
    return {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in state.items()
    }


def renamed(rule):
    """Return a change that applies `rule` to every name."""
    return lambda state: {rule(name): tensor for name, tensor in state.items()}


def without_prefix(name):
    return name.removeprefix("bert.").removeprefix("roformer.")


def prefix_of(state):
    return "bert." if any(name.startswith("bert.") for name in state) else "roformer."


def with_buffers(state):
    """Add what a model of those days saved besides: ids and the table of sines and cosines."""
    prefix, ids = prefix_of(state), torch.arange(LONGEST)[None]
    made = rotary_table(torch.arange(1536), HIDDEN // HEADS)
    table = {} if prefix == "bert." else {f"{prefix}encoder.embed_positions.weight": made}
    table = {name: torch.cat((made.sin, made.cos), dim=1) for name in table}
    ids = {f"{prefix}embeddings.position_ids": ids, f"{prefix}embeddings.token_type_ids": 0 * ids}
    return state | ids | table


def with_copies(state):
    return state | {
        "cls.predictions.decoder.weight": state[
            f"{prefix_of(state)}embeddings.word_embeddings.weight"
        ],
        "cls.predictions.decoder.bias": state["cls.predictions.bias"],
    }


def copies_alone(state):
    """Keep of tied weights the other copy than today's."""
    state = with_copies(state)
    originals = (f"{prefix_of(state)}embeddings.word_embeddings.weight", "cls.predictions.bias")
    return {name: tensor for name, tensor in state.items() if name not in originals}


CHANGES = {
    "gamma and beta": old_norms,
    "no prefix": renamed(without_prefix),
    "module.": renamed(lambda name: f"module.{name}"),
    "double prefix": renamed(lambda name: f"bert.{name}"),
    "roformer.bert.": renamed(lambda name: f"roformer.bert.{without_prefix(name)}"),
    "buffers": with_buffers,
    "copies": with_copies,
    "copies alone": copies_alone,
    "everything": lambda state: old_norms(
        renamed(lambda name: f"module.{name}")(with_buffers(with_copies(state)))
    ),
}


@each_masked_lm
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_older_names_give_the_same_weights(model_class, change, tmp_path):
    saved(model_class, tmp_path)
    expected = load(tmp_path).model.state_dict()
    rewrite(tmp_path, change)
    loaded = load(tmp_path).model.state_dict()
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)


@each_masked_lm
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_fp32(model_class, half, tmp_path):
    saved(model_class, tmp_path)
    expected = load(tmp_path).model.state_dict()
    rewrite(tmp_path, lambda state: {n: t.to(half) for n, t in with_copies(state).items()})
    for name, tensor in load(tmp_path).model.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, expected[name].to(half).float())


def as_pickle(folder, *, zipped=True):
    state = load_file(folder / "model.safetensors")
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    (folder / "model.safetensors").unlink()


def in_shards(folder, name, write):
    """Cut the weights into three files and an index."""
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    stem, _, end = name.rpartition(".")
    places = {}
    for shard in range(3):
        file = f"{stem}-{shard + 1:05d}-of-00003.{end}"
        part = {key: state[key] for key in sorted(state)[shard::3]}
        write(part, folder / file)
        places |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / f"{name}.index.json").write_text(json.dumps(index))


FORMS = {
    "pickle": as_pickle,
    "pickle before zip": lambda folder: as_pickle(folder, zipped=False),
    "safetensors in shards": lambda folder: in_shards(folder, "model.safetensors", save_file),
    "pickles in shards": lambda folder: in_shards(folder, "pytorch_model.bin", torch.save),
}


@each_masked_lm
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_of_file_gives_the_same_weights(model_class, form, tmp_path):
    saved(model_class, tmp_path)
    expected = load(tmp_path).model.state_dict()
    form(tmp_path)
    loaded = load(tmp_path).model.state_dict()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)


def test_configs_older_than_the_key_say_their_type_by_their_class(tmp_path):
    saved(BertForMaskedLM, tmp_path)
    configure(tmp_path, model_type=None)
    assert isinstance(load(tmp_path).model, MaskedLM)
    configure(tmp_path, model_type="bert", architectures=None)
    assert isinstance(load(tmp_path).model, MaskedLM)
    configure(tmp_path, architectures=None, model_type=None)
    assert "names no model_type" in refusal(tmp_path)


# --- what is refused -----------------------------------------------------------------------------


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
    FORMS["safetensors in shards"](folder)
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


# --- tokenizers ----------------------------------------------------------------------------------


def settings(folder, **stated):
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    (folder / "tokenizer.json").unlink(missing_ok=True)


def chinese_words(folder):
    """Leave the class unsaid, with a vocabulary that holds a word of two characters."""
    settings(folder)
    lines = (folder / "vocab.txt").read_text().splitlines()
    lines[-1] = "\u5929\u6c14"
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def no_files(folder):
    for name in ("vocab.txt", "tokenizer.json"):
        (folder / name).unlink()


OTHER_TOKENIZERS = {
    "words, cut into characters": (
        lambda f: (chinese_words(f), configure(f, tokenizer_class="BertTokenizer")),
        "BertTokenizer, which cuts Chinese into characters, but its vocabulary has words",
    ),
    "another class": (
        lambda f: settings(f, tokenizer_class="BertJapaneseTokenizer"),
        "its tokenizer is BertJapaneseTokenizer",
    ),
    "accents": (
        lambda f: settings(f, tokenizer_class="BertTokenizer", strip_accents=False),
        "BertTokenizer with strip_accents=False",
    ),
    "characters": (
        lambda f: settings(f, tokenizer_class="BertTokenizer", tokenize_chinese_chars=False),
        "tokenize_chinese_chars=false",
    ),
    "added": (
        lambda f: (f / "added_tokens.json").write_text(json.dumps({"[NEW]": 59})),
        r"added tokens \(\[NEW\]\)",
    ),
    "none": (no_files, "comes without a tokenizer"),
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
    for use in (lambda: trained.tokenizer, lambda: trained.fill_mask("[MASK]")):
        with pytest.raises(InputError, match=message) as refused:
            use()
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match=f"cannot be fine-tuned on texts: .*{message}"):
        start(tmp_path)


WORDS = {
    "in its settings": lambda f: settings(f, tokenizer_class="RoFormerTokenizer"),
    "in its settings, Chinese characters left together": lambda f: settings(
        f, tokenizer_class="RoFormerTokenizer", tokenize_chinese_chars=False
    ),
    "in config.json": lambda f: (
        settings(f),
        configure(f, tokenizer_class="RoFormerTokenizerFast"),
    ),
    "unsaid": lambda f: None,
    "as transformers saves it": lambda f: RoFormerTokenizer(
        vocab={entry: i for i, entry in enumerate(WordPiece.load(f).vocabulary)}
    ).save_pretrained(f),
}


@pytest.mark.parametrize("model_class", MASKED_LMS, ids=["bert", "roformer"])
@pytest.mark.parametrize("named", WORDS)
def test_models_of_words_read_texts(named, model_class, tmp_path):
    """WoBERT and RoFormer: a word of the vocabulary is one token, wherever the class is named."""
    saved(model_class, tmp_path)
    chinese_words(tmp_path)
    WORDS[named](tmp_path)
    trained = load(tmp_path)
    word = TOKENIZER.size - 1
    assert trained.tokenizer.words == "jieba"
    assert trained.tokenizer.encode("\u5929\u6c14a") == [word, TOKENIZER.encode("a")[0]]
    assert trained.fill_mask("\u5929\u6c14[MASK]") and start(tmp_path).tokenizer.words == "jieba"


def test_models_of_characters_read_texts(tmp_path):
    """Their config.json names BertTokenizer; where nothing does, the vocabulary has no words."""
    saved(RoFormerForMaskedLM, tmp_path)
    settings(tmp_path)
    assert load(tmp_path).fill_mask("[MASK]")
    configure(tmp_path, tokenizer_class="BertTokenizer")
    assert load(tmp_path).tokenizer.fingerprint == TOKENIZER.fingerprint


# --- the Hub -------------------------------------------------------------------------------------


def hub(monkeypatch, folder):
    """Stand in for the download; returns what was asked for."""
    asked = []

    def snapshot(repository, *, revision=None, allow_patterns=None):
        asked.append((repository, revision, allow_patterns))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    return asked


@pytest.mark.parametrize("name", ["junnyu/roformer_chinese_char_small", "bert-base-uncased"])
def test_a_hub_id_is_read_at_its_revision_and_pickles_only_in_need(name, tmp_path, monkeypatch):
    snapshot = tmp_path / COMMIT
    saved(BertForMaskedLM, snapshot)
    asked = hub(monkeypatch, snapshot)
    assert isinstance(load(name, revision="v1").model, MaskedLM)
    ((repository, revision, patterns),) = asked
    assert (repository, revision) == (name, "v1") and not any(".bin" in p for p in patterns)
    as_pickle(snapshot)
    (snapshot / "pytorch_model.bin").rename(tmp_path / "kept")
    asked.clear()
    assert "neither model.safetensors nor" in refusal(name)
    # The second question is for the commit that the first one found.
    assert [(revision, ".bin" in str(p)) for _, revision, p in asked] == [
        (None, False),
        (COMMIT, True),
    ]
    snapshot.rename(snapshot := tmp_path / "main")
    asked = hub(monkeypatch, snapshot)
    refusal(name, revision="v1")
    assert [revision for _, revision, _ in asked] == ["v1", "v1"]
    (tmp_path / "kept").rename(snapshot / "pytorch_model.bin")
    assert start(name).name == name and isinstance(load(name).model, MaskedLM)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("RepositoryNotFoundError", "the Hub has no such model"),
        ("RevisionNotFoundError", "not this revision"),
        ("LocalEntryNotFoundError", "cannot be reached, and the cache does not have it"),
        ("ConnectionError", "ConnectionError, no route"),
    ],
)
def test_a_hub_that_fails_is_told_in_one_line(error, message, monkeypatch):
    def snapshot(repository, **_):
        raise type(error, (Exception,), {})("no route\nto the Hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    found = refusal("owner/name", revision="v1")
    assert "at revision v1" in found and message in found and "HF_HUB_OFFLINE=1" in found
    with pytest.raises(InputError, match="init_from=owner/name cannot be read"):
        start("owner/name")


def test_an_offline_machine_without_the_model_says_so(monkeypatch, tmp_path):
    """Through the library itself, with nothing in its cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert "cannot be read as a Hugging Face model: no such folder here" in refusal("owner/name")
