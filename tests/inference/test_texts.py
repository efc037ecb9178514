"""One text has one answer, a list has a list, and anything else raises a one-line error."""

import re

import numpy as np
import pytest
import torch

import roformer
from roformer.config.position import Learned
from roformer.config.wmt import SearchConfig
from roformer.data.tokenizers import ByteVocabulary
from roformer.errors import InputError
from roformer.evaluation.sampling import Sampling
from roformer.inference.generate import ByteCodec, Generator
from roformer.inference.load import Prediction, TrainedModel
from roformer.inference.translate import Translation, Translator
from tests.data.parallel_texts import trained as trained_bpe
from tests.trained import stored


def model_of(kind="mlm", position=None, **described):
    made = stored(kind, position, described=described)
    return TrainedModel(made.build(), made.tokenizer, made.description)


@pytest.fixture(scope="module")
def ask():
    """Return what asks a model of random weights, by its name."""
    bpe = trained_bpe("bytes")
    seq2seq = stored("translation", tokenizer=bpe).build()
    search = SearchConfig(beam=2, max_length_extra=2)
    generator = Generator(
        stored("causal", tokenizer=ByteVocabulary()).build(), ByteCodec(), length=64
    )

    def continued(given):
        found = generator.generate(given, Sampling(), max_tokens=8, seed=1)
        return list(map("".join, found)) if isinstance(found, list) else "".join(found)

    return {
        "single": model_of("classifier").predict,
        "paired": model_of("classifier", texts=["first", "second"]).predict,
        "either": model_of("classifier", texts=None).predict,
        "masked": model_of("mlm").fill_mask,
        "translator": Translator(seq2seq, bpe, search, n_best=2).translate,
        "generator": continued,
    }


ITEMS = {
    "single": ["the cat", "the mat"],
    "paired": [("the cat", "sat"), ("on", "the mat")],
    "either": ["good", "bad"],
    "masked": ["the [MASK] cat [MASK]", "[MASK]"],
    "translator": ["The old man sees a dog.", ""],
    "generator": ["The", "A"],
}


@pytest.mark.parametrize("name", ITEMS)
def test_one_has_one_answer_and_many_have_a_list(ask, name):
    one, other = ITEMS[name]
    alone, many = ask[name](one), ask[name]([one, other])
    assert isinstance(many, list) and len(many) == 2 and ask[name]([]) == []
    assert len(ask[name](iter([one, other]))) == 2
    if name == "masked":
        assert [len(fillings) for fillings in (alone, many[1])] == [2, 1] and many[0] == alone
    elif name == "translator":
        assert [type(hypothesis) for hypothesis in alone] == [Translation] * 2
        assert [h.text for h in many[0]] == [h.text for h in alone]
        assert [h.text for h in many[1]] == ["", ""]
    elif name == "generator":
        assert alone == many[0]
    else:
        assert isinstance(alone, Prediction) and alone.label in ("no", "yes")
        assert many[0].score == pytest.approx(alone.score, abs=1e-6)


NEITHER = [3, None, b"the cat", {"text": "the cat"}, {"cat"}, np.array([["a", "b"]]), np.array("a")]
BAD_ITEMS = [3, b"good", ["good"], ("good",), ("a", "b", "c"), "\ud800"]


@pytest.mark.parametrize("name", ["single", "paired", "masked", "translator", "generator"])
def test_what_is_no_text_and_no_list_of_texts_is_refused(name, ask):
    """An item by its number; a tuple is no list."""
    for given in NEITHER:
        with pytest.raises(InputError, match="give one text or a list of texts, not"):
            ask[name](given)
    for item in BAD_ITEMS:
        with pytest.raises(InputError, match=r"^text 2: "):
            ask[name]([ITEMS[name][0], item])
    for given in ((), ("good",), ("good", "film", "bad")):
        with pytest.raises(InputError, match="give many texts as a list"):
            ask[name](given)


def test_pairs_are_for_tasks_of_pairs(ask):
    for given in ["good film", ["good", "film"], [["good", "film"]], ("a", 1)]:
        with pytest.raises(InputError, match=r"takes pairs, each a tuple of two|a text is a str"):
            ask["paired"](given)
    with pytest.raises(InputError, match="takes single texts"):
        ask["single"](("good", "film"))
    assert isinstance(ask["either"](("good", "bad")), Prediction)
    with pytest.raises(InputError, match="takes single texts or pairs, not both"):
        ask["either"](["good", ("good", "bad")])


def test_a_model_that_cannot_answer_says_so(ask):
    masked, single = ask["masked"].__self__, ask["single"].__self__
    made = stored("classifier", described={"texts": ["a", "b"]}, token_types=1)
    one_type = TrainedModel(made.build(), made.tokenizer, made.description)
    for call, message in (
        (
            lambda: one_type.predict(("a", "b")),
            "needs two token types, and this model has token_typ",
        ),
        (lambda: masked.predict("a"), "was not fine-tuned"),
        (lambda: single.fill_mask("[MASK]"), "predicts no tokens"),
        (lambda: masked.embed("a", "max"), "pooling=max: choose mean or cls"),
        (lambda: TrainedModel(masked.model, "it has none", {}).embed("a"), "cannot read texts, on"),
        (lambda: roformer.load_model("no/run", device="gpu"), "gpu is no device of this machine"),
        (
            lambda: Translator(None, None, SearchConfig(), precision="float16"),
            "precision=float16: choose fp32 or bf16",
        ),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_a_trained_model_shows_what_it_is(ask):
    shown = (
        r"TrainedModel\(Classifier of mrpc, 2 layers of 32, rotary positions, [\d,]+ parameters\)"
    )
    assert re.fullmatch(shown, repr(ask["single"].__self__))


# --- embeddings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("headless", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_an_embedding_is_the_pooled_last_state_of_only_its_text(headless, pooling):
    """In the order of the texts, whatever batch a text is padded in."""
    trained = model_of()
    if headless:
        trained.model = trained.model.encoder
    texts = ["the cat", "sat", "", *("a " * n for n in range(20)), *["the mat on the cat"] * 20]
    vectors = trained.embed(texts, pooling)
    assert vectors.shape == (len(texts), 32) and vectors.dtype == torch.float32
    for number, text in enumerate(texts[:25]):
        ids = [trained.tokenizer.cls_id, *trained.tokenizer.encode(text), trained.tokenizer.sep_id]
        with torch.no_grad():
            states = trained.encoder(torch.tensor([ids]))[0]
        expected = states.mean(0) if pooling == "mean" else states[0]
        torch.testing.assert_close(vectors[number], expected, atol=1e-5, rtol=1e-5)
    one = trained.embed("the cat", pooling)
    torch.testing.assert_close(one, vectors[0], atol=1e-5, rtol=1e-5)
    assert trained.embed([]).shape == (0, 32)


def test_a_text_beyond_the_model_is_cut_with_a_warning():
    trained = model_of(position=Learned(max_positions=8))
    with pytest.warns(UserWarning, match="1 of 2 texts exceed 8 tokens and were cut"):
        vectors = trained.embed(["the cat " * 20, "the cat"])
    torch.testing.assert_close(vectors[0], trained.embed("the cat the cat the cat"))
