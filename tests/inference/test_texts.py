"""One text has one answer, many have many, and anything else raises a one-line error."""

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


@pytest.fixture(scope="module")
def ask():
    """Return what asks a model of random weights, by its name."""

    def trained(kind, **described):
        model = stored(kind, described=described)
        return TrainedModel(model.build(), model.tokenizer, model.description)

    bpe = trained_bpe("bytes")
    seq2seq = stored("translation", tokenizer=bpe).build()
    search = SearchConfig(beam=2, max_length_extra=2)
    causal = stored("causal", tokenizer=ByteVocabulary()).build()
    generator = Generator(causal, ByteCodec(), 64)
    return {
        "single": trained("classifier").predict,
        "paired": trained("classifier", texts=["first", "second"]).predict,
        "either": trained("classifier", texts=None).predict,
        "masked": trained("mlm").fill_mask,
        "translator": Translator(seq2seq, bpe, search, n_best=2).translate,
        "generator": lambda given: generator.generate(given, Sampling(), max_tokens=8, seed=1),
    }


# --- one and many --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [("single", "the cat", "the mat"), ("paired", ("the cat", "sat"), ("on", "the mat"))],
)
def test_one_text_or_pair_has_one_prediction_and_many_have_a_list(ask, name, one, other):
    alone = ask[name](one)
    assert isinstance(alone, Prediction) and alone.label in ("no", "yes")
    many = ask[name]([one, other])
    assert isinstance(many, list) and [type(p) for p in many] == [Prediction] * 2
    assert many[0].score == pytest.approx(alone.score, abs=1e-6)
    assert ask[name]([]) == [] and len(ask["single"](np.array(["sat", "on it"]))) == 2


def test_a_model_of_others_takes_both_one_kind_a_call(ask):
    assert isinstance(ask["either"]("good"), Prediction)
    assert isinstance(ask["either"](("good", "bad")), Prediction)
    with pytest.raises(InputError, match="takes single texts"):
        ask["either"](["good", ("good", "bad")])


def test_an_iterator_is_read_as_its_answers_are_taken(ask):
    read = []
    answers = ask["single"]("the cat" for number in range(100) if not read.append(number))
    assert read == []
    assert isinstance(next(answers), Prediction) and len(read) == 32
    assert len(list(answers)) == 99


def test_one_text_is_filled_and_many_are(ask):
    one = ask["masked"]("the [MASK] cat [MASK]", top=2)
    assert [len(fillings) for fillings in one] == [2, 2]
    many = ask["masked"](["the [MASK] cat [MASK]", "[MASK]"], top=2)
    assert many[0] == one and len(many) == 2 and len(many[1]) == 1


def test_one_line_is_translated_and_many_are(ask):
    one = ask["translator"]("The old man sees a dog.")
    assert [type(hypothesis) for hypothesis in one] == [Translation] * 2
    many = ask["translator"](["The old man sees a dog.", "", "No."])
    assert isinstance(many, list) and [len(n_best) for n_best in many] == [2, 2, 2]
    assert [h.text for h in many[0]] == [h.text for h in one]
    assert [h.text for h in many[1]] == ["", ""]
    lazily = ask["translator"](iter(["", "No."]))
    assert [h.text for h in next(lazily)] == ["", ""]


def test_one_prompt_is_continued_and_many_are(ask):
    one = "".join(ask["generator"]("The"))
    many = ask["generator"](["The", "A"])
    assert isinstance(many, list) and len(many) == 2
    assert "".join(many[0]) == one


# --- what is neither -----------------------------------------------------------------------------

NEITHER = [3, None, b"the cat", {"text": "the cat"}, {"cat"}, np.array([["a", "b"]]), np.array("a")]
BAD_ITEMS = [3, b"good", ["good"], ("good",), ("a", "b", "c"), "\ud800"]
GOOD = {"paired": ("good", "film"), "masked": "[MASK]"}


@pytest.mark.parametrize("name", ["single", "paired", "masked", "translator", "generator"])
def test_what_is_no_text_and_no_list_of_texts_is_refused(name, ask):
    """An item by its number; a tuple is no list."""
    for given in NEITHER:
        with pytest.raises(InputError, match="give one text or a list of texts, not"):
            ask[name](given)
    for item in BAD_ITEMS:
        texts = [GOOD.get(name, "good"), item]
        for given in (texts, iter(texts)):
            with pytest.raises(InputError, match=r"^text 2: "):
                list(ask[name](given))
    for given in ((), ("good",), ("good", "film", "bad")):
        with pytest.raises(InputError, match="give many texts as a list"):
            ask[name](given)


def test_only_a_tuple_of_two_texts_is_a_pair(ask):
    for given in ["good film", ["good", "film"], [["good", "film"]], ("a", 1)]:
        with pytest.raises(InputError, match=r"takes pairs, each a tuple of two|a text is a str"):
            ask["paired"](given)
    with pytest.raises(InputError, match="give many texts as a list"):
        ask["single"](("good", "film"))


def test_a_wrong_model_says_so_before_any_text_is_looked_at(ask):
    masked, single = ask["masked"].__self__, ask["single"].__self__
    with pytest.raises(InputError, match="was not fine-tuned"):
        masked.predict(iter([3]))
    with pytest.raises(InputError, match="predicts no tokens"):
        single.fill_mask("[MASK]")


def test_a_search_that_fails_leaves_the_model_in_training(ask, monkeypatch):
    translator = ask["translator"].__self__
    translator.model.train()
    monkeypatch.setattr(translator, "_search", lambda sources: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        translator.translate("No.")
    assert translator.model.training
    translator.model.eval()


@pytest.mark.parametrize("load", ["load_model", "load_generator", "load_translator"])
@pytest.mark.parametrize("device", ["cuda:77", "gpu"])
def test_a_device_that_is_not_here_is_refused_first(load, device):
    with pytest.raises(InputError, match=f"{device} is no device of this machine: choose "):
        getattr(roformer, load)("no/run", device=device)


# --- embeddings ----------------------------------------------------------------------------------


def embedder(kind="mlm", position=None, **described):
    model = stored(kind, position, described=described)
    return TrainedModel(model.build(), model.tokenizer, model.description)


@pytest.mark.parametrize("kind", ["mlm", "classifier", "encoder"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_an_embedding_is_the_pooled_last_state_of_the_text_alone(kind, pooling):
    """In the order of the texts, whatever batch a text is padded in; an iterator has the same."""
    trained = embedder(kind if kind != "encoder" else "mlm")
    if kind == "encoder":
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
    assert torch.equal(trained.embed(iter(texts), pooling), vectors)
    one = trained.embed("the cat", pooling)
    torch.testing.assert_close(one, vectors[0], atol=1e-5, rtol=1e-5)
    assert trained.embed([]).shape == (0, 32)


def test_a_text_beyond_the_model_is_cut_with_a_warning():
    trained = embedder(position=Learned(max_positions=8))
    with pytest.warns(UserWarning, match="1 of 2 texts exceed 8 tokens and were cut"):
        vectors = trained.embed(["the cat " * 20, "the cat"])
    torch.testing.assert_close(vectors[0], trained.embed("the cat the cat the cat"))


def test_what_cannot_be_embedded_is_one_line():
    trained = embedder()
    for given in (3, b"the cat", ("the", "cat"), ["the", 3], ["\ud800"], {"the"}):
        with pytest.raises(InputError):
            trained.embed(given)
    with pytest.raises(InputError, match="pooling=max: choose mean or cls"):
        trained.embed("the cat", "max")
    with pytest.raises(InputError, match="cannot read texts, only token ids: it has none"):
        TrainedModel(trained.model, "it has none", {}).embed("the cat")


def test_a_trained_model_says_what_it_is():
    assert repr(embedder()).startswith("TrainedModel(MaskedLM, 2 layers of 32, rotary positions, ")
    assert repr(embedder("classifier")).startswith(
        "TrainedModel(Classifier of mrpc, 2 layers of 32"
    )


def test_a_precision_that_is_not_there_is_refused():
    """Not taken for fp32, so that nobody measures what did not run."""
    bpe = trained_bpe("bytes")
    model = stored("translation", tokenizer=bpe).build()
    with pytest.raises(InputError, match="precision=float16: choose fp32 or bf16"):
        Translator(model, bpe, SearchConfig(beam=2), precision="float16")
