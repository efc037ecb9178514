"""One text has one answer, many have many, and what is neither is refused in one line."""

from collections import OrderedDict

import numpy as np
import pytest
import torch

from roformer.config.attention import SoftmaxAttention
from roformer.config.lm import CausalConfig
from roformer.config.position import Rotary
from roformer.config.schema import EncoderConfig
from roformer.config.wmt import SearchConfig, Seq2SeqConfig
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece
from roformer.errors import InputError
from roformer.evaluation.sampling import Sampling
from roformer.inference.generate import ByteCodec, Generator
from roformer.inference.load import Prediction, TrainedModel
from roformer.inference.translate import Translation, Translator
from roformer.models.causal import CausalLM
from roformer.models.classifier import Classifier
from roformer.models.encoder import MaskedLM
from roformer.models.seq2seq import Seq2Seq
from tests.data.parallel_texts import trained as trained_bpe

SIZES = {
    "name": "test",
    "size": "test",
    "layers": 1,
    "hidden_size": 16,
    "heads": 2,
    "intermediate_size": 16,
    "position": Rotary(),
    "attention": SoftmaxAttention(),
}
TOKENIZER = WordPiece([*SPECIAL_TOKENS, "the", "good", "bad", "film"], lowercase=True)
TEXTS = {"single": ["text"], "paired": ["first", "second"], "either": None}
"""Classifier → `texts` of its description."""


@pytest.fixture(scope="module")
def ask():
    """Return what asks a model of random weights, by its name."""
    torch.manual_seed(0)
    asks = {}
    for name, texts in TEXTS.items():
        model = Classifier(EncoderConfig(**SIZES), TOKENIZER.size, 2, dropout=0.0).eval()
        description = {"task": "mine", "labels": ["no", "yes"], "texts": texts, "max_length": 16}
        asks[name] = TrainedModel(model, TOKENIZER, description).predict
    masked = TrainedModel(MaskedLM(EncoderConfig(**SIZES), TOKENIZER.size).eval(), TOKENIZER, {})
    asks["masked"] = masked.fill_mask
    bpe = trained_bpe("bytes")
    seq2seq = Seq2Seq(Seq2SeqConfig(**SIZES, decoder_layers=1), bpe.size)
    search = SearchConfig(beam=2, max_length_extra=2)
    asks["translator"] = Translator(seq2seq, bpe, search, n_best=2).translate
    generator = Generator(CausalLM(CausalConfig(**SIZES), 256).eval(), ByteCodec(), 64)
    asks["generator"] = lambda given: generator.generate(given, Sampling(), max_tokens=8, seed=1)
    return asks


# --- one and many --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("single", "the good film", "the bad film"),
        ("paired", ("the film", "good"), ("bad", "the film")),
    ],
)
def test_one_text_or_pair_has_one_prediction_and_many_have_a_list(ask, name, one, other):
    alone = ask[name](one)
    assert isinstance(alone, Prediction) and alone.label in ("no", "yes")
    many = ask[name]([one, other])
    assert isinstance(many, list) and [type(p) for p in many] == [Prediction] * 2
    assert many[0].score == pytest.approx(alone.score, abs=1e-6)
    assert ask[name]([]) == []


def test_a_model_of_others_takes_both_one_kind_a_call(ask):
    assert isinstance(ask["either"]("good"), Prediction)
    assert isinstance(ask["either"](("good", "bad")), Prediction)
    with pytest.raises(InputError, match="takes single texts"):
        ask["either"](["good", ("good", "bad")])


def test_an_iterator_is_read_as_its_answers_are_taken(ask):
    read = []

    def texts():
        for number in range(100):
            read.append(number)
            yield "the film"

    answers = ask["single"](texts())
    assert read == []
    assert isinstance(next(answers), Prediction) and len(read) == 32
    assert len(list(answers)) == 99


def test_an_array_of_texts_is_many(ask):
    assert len(ask["single"](np.array(["good", "bad film"]))) == 2


def test_one_text_is_filled_and_many_are(ask):
    one = ask["masked"]("the [MASK] film [MASK]", top=2)
    assert [len(fillings) for fillings in one] == [2, 2]
    many = ask["masked"](["the [MASK] film [MASK]", "[MASK]"], top=2)
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

TABLES = [np.array([["the film", "good"]]), np.array("the film")]
NEITHER = [3, None, b"the film", {"text": "the film"}, {"good"}, OrderedDict(a="b"), *TABLES]
BAD_ITEMS = [3, None, b"good", {"text": "good"}, ["good"], (), ("good",), ("a", "b", "c"), "\ud800"]
GOOD = {"paired": ("good", "film"), "masked": "[MASK]"}
ALL = pytest.mark.parametrize("name", ["single", "paired", "masked", "translator", "generator"])


@ALL
def test_what_is_no_text_and_no_list_is_refused(name, ask):
    for given in NEITHER:
        with pytest.raises(InputError, match="give one text or a list of texts, not"):
            ask[name](given)


@ALL
def test_an_item_that_is_no_text_is_refused_by_its_number(name, ask):
    for item in BAD_ITEMS:
        texts = [GOOD.get(name, "good"), item]
        for given in (texts, iter(texts)):
            with pytest.raises(InputError, match=r"^text 2: "):
                list(ask[name](given))


@pytest.mark.parametrize("name", ["single", "masked", "translator", "generator"])
def test_a_tuple_is_no_list_of_texts(name, ask):
    for given in (("good", "film"), ("good", "film", "bad"), (), ("good",)):
        with pytest.raises(InputError, match="give many texts as a list"):
            ask[name](given)


def test_only_a_tuple_of_two_texts_is_a_pair(ask):
    many = ["good film", ["good", "film"], [["good", "film"]]]
    for given in [*many, (), ("good",), ("a", "b", "c"), ("a", 1)]:
        with pytest.raises(InputError, match=r"takes pairs, each a tuple of two|a text is a str"):
            ask["paired"](given)


def test_a_wrong_model_says_so_before_any_text_is_looked_at(ask):
    masked, single = ask["masked"].__self__, ask["single"].__self__
    with pytest.raises(InputError, match="was not fine-tuned"):
        masked.predict(iter([3]))
    with pytest.raises(InputError, match="predicts no tokens"):
        single.fill_mask("[MASK]")
