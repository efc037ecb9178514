"""What `transformers` saved, now or years ago, loads as ours: equal weights and logits."""

import warnings

import pytest
import torch
from transformers import (
    BertForMaskedLM,
    BertForSequenceClassification,
    RoFormerForSequenceClassification,
)

import roformer
from roformer.errors import InputError
from roformer.models.encoder import Encoder
from tests.data.glue_tasks import TOKENIZER
from tests.parity.hugging_face_models import (
    HOMES,
    LONGEST,
    MASKED_LMS,
    TOLERANCE,
    configure,
    in_shards,
    load,
    prefix_of,
    refusal,
    rewrite,
    saved,
    with_buffers,
)


@pytest.mark.parametrize("model_class", HOMES, ids=lambda c: c.__name__)
def test_every_architecture_computes_the_same(model_class, tmp_path):
    """And what is not used of it is named once, in one line."""
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
    assert (logits - expected).abs().max() <= TOLERANCE


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
    with pytest.raises(InputError, match="predicts no tokens"):
        trained.fill_mask("[MASK]")
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


# --- older checkpoints ---------------------------------------------------------------------------


def old_norms(name):
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
        "LayerNorm.bias", "LayerNorm.beta"
    )


def without_prefix(name):
    return name.removeprefix("bert.").removeprefix("roformer.")


def renamed(rule):
    """Return a change that applies `rule` to every name."""
    return lambda state: {rule(name): tensor for name, tensor in state.items()}


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


def in_bf16(state):
    return {name: tensor.bfloat16() for name, tensor in with_copies(state).items()}


CHANGES = {
    "gamma and beta": renamed(old_norms),
    "no prefix": renamed(without_prefix),
    "table and ids": with_buffers,
    "copies": with_copies,
    "copies alone": copies_alone,
    "everything": lambda state: renamed(lambda name: old_norms(without_prefix(name)))(
        with_buffers(with_copies(state))
    ),
    "half precision": in_bf16,
    "shards": None,
}


@pytest.mark.parametrize("model_class", MASKED_LMS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("change", CHANGES)
def test_older_and_other_files_give_the_same_weights(model_class, change, tmp_path):
    saved(model_class, tmp_path)
    expected = load(tmp_path).model.state_dict()
    if change == "half precision":
        expected = {name: tensor.bfloat16().float() for name, tensor in expected.items()}
    if CHANGES[change] is None:
        in_shards(tmp_path)
    else:
        rewrite(tmp_path, CHANGES[change])
    loaded = load(tmp_path).model.state_dict()
    assert loaded.keys() == expected.keys()
    for name, tensor in loaded.items():
        assert tensor.dtype == torch.float32 and torch.equal(tensor, expected[name])


def test_a_model_without_architectures_is_an_encoder_and_one_without_a_type_is_refused(tmp_path):
    saved(BertForMaskedLM, tmp_path)
    configure(tmp_path, architectures=None)
    with pytest.warns(UserWarning, match="not used of .*cls.predictions.transform"):
        assert isinstance(roformer.load_model(tmp_path).model, Encoder)
    configure(tmp_path, model_type=None)
    assert "names no model_type" in refusal(tmp_path)
