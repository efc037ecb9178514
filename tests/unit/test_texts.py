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
BYTES = trained_bpe("bytes")


def classifier(texts):
    """Return a classifier of random weights; `texts` as in a checkpoint's description."""
    model = Classifier(EncoderConfig(**SIZES), TOKENIZER.size, 2, dropout=0.0).eval()
    description = {"task": "mine", "labels": ["no", "yes"], "texts": texts, "max_length": 16}
    return TrainedModel(model, TOKENIZER, description)


@pytest.fixture(scope="module")
def single():
    return classifier(["text"])


@pytest.fixture(scope="module")
def paired():
    return classifier(["first", "second"])


@pytest.fixture(scope="module")
def masked():
    return TrainedModel(MaskedLM(EncoderConfig(**SIZES), TOKENIZER.size).eval(), TOKENIZER, {})


@pytest.fixture(scope="module")
def translator():
    torch.manual_seed(0)
    model = Seq2Seq(Seq2SeqConfig(**SIZES, decoder_layers=1), BYTES.size)
    return Translator(model, BYTES, SearchConfig(beam=2, max_length_extra=2), n_best=2)


@pytest.fixture(scope="module")
def generator():
    torch.manual_seed(0)
    return Generator(CausalLM(CausalConfig(**SIZES), 256).eval(), ByteCodec(), 64)


# --- one and many --------------------------------------------------------------------------------


def test_one_text_has_one_prediction_and_many_have_a_list(single):
    one = single.predict("the good film")
    assert isinstance(one, Prediction) and one.label in ("no", "yes")
    many = single.predict(["the good film", "the bad film"])
    assert isinstance(many, list) and [type(p) for p in many] == [Prediction] * 2
    assert many[0].score == pytest.approx(one.score, abs=1e-6)
    assert single.predict([]) == []


def test_a_tuple_is_one_pair_and_a_list_of_tuples_many(paired):
    one = paired.predict(("the film", "good"))
    assert isinstance(one, Prediction)
    many = paired.predict([("the film", "good"), ("bad", "the film")])
    assert isinstance(many, list) and len(many) == 2
    assert many[0].score == pytest.approx(one.score, abs=1e-6)


def test_a_model_of_others_takes_both_one_kind_a_call():
    trained = classifier(None)
    assert isinstance(trained.predict("good"), Prediction)
    assert isinstance(trained.predict(("good", "bad")), Prediction)
    with pytest.raises(InputError, match="takes single texts"):
        trained.predict(["good", ("good", "bad")])


def test_an_iterator_is_read_as_its_answers_are_taken(single):
    read = []

    def texts():
        for number in range(100):
            read.append(number)
            yield "the film"

    answers = single.predict(texts())
    assert read == []
    assert isinstance(next(answers), Prediction) and len(read) == 32
    assert len(list(answers)) == 99


def test_an_array_of_texts_is_many(single):
    assert len(single.predict(np.array(["good", "bad film"]))) == 2


def test_one_text_is_filled_and_many_are(masked):
    one = masked.fill_mask("the [MASK] film [MASK]", top=2)
    assert [len(fillings) for fillings in one] == [2, 2]
    many = masked.fill_mask(["the [MASK] film [MASK]", "[MASK]"], top=2)
    assert many[0] == one and len(many) == 2 and len(many[1]) == 1


def test_one_line_is_translated_and_many_are(translator):
    one = translator.translate("The old man sees a dog.")
    assert [type(hypothesis) for hypothesis in one] == [Translation] * 2
    many = translator.translate(["The old man sees a dog.", "", "No."])
    assert isinstance(many, list) and [len(n_best) for n_best in many] == [2, 2, 2]
    assert [h.text for h in many[0]] == [h.text for h in one]
    assert [h.text for h in many[1]] == ["", ""]
    lazily = translator.translate(iter(["", "No."]))
    assert [h.text for h in next(lazily)] == ["", ""]


def test_one_prompt_is_continued_and_many_are(generator):
    one = "".join(generator.generate("The", Sampling(), max_tokens=8, seed=1))
    many = generator.generate(["The", "A"], Sampling(), max_tokens=8, seed=1)
    assert isinstance(many, list) and len(many) == 2
    assert "".join(many[0]) == one


# --- what is neither -----------------------------------------------------------------------------

NEITHER = [
    3,
    None,
    2.5,
    True,
    b"the film",
    {"text": "the film"},
    {"good"},
    OrderedDict(a="b"),
    np.array([["the film", "good"]]),
    np.array("the film"),
]
BAD_ITEMS = [3, None, b"good", {"text": "good"}, ["good"], (), ("good",), ("a", "b", "c"), "\ud800"]


def asked(name, request):
    model = request.getfixturevalue(name)
    return {
        "single": lambda given: model.predict(given),
        "paired": lambda given: model.predict(given),
        "masked": lambda given: model.fill_mask(given),
        "translator": lambda given: model.translate(given),
        "generator": lambda given: model.generate(given, Sampling(), max_tokens=2),
    }[name]


ALL = pytest.mark.parametrize("name", ["single", "paired", "masked", "translator", "generator"])


@ALL
@pytest.mark.parametrize("given", NEITHER, ids=repr)
def test_what_is_no_text_and_no_list_is_refused(name, given, request):
    with pytest.raises(InputError, match="give one text or a list of texts, not"):
        asked(name, request)(given)


@ALL
@pytest.mark.parametrize("item", BAD_ITEMS, ids=repr)
def test_an_item_that_is_no_text_is_refused_by_its_number(name, item, request):
    good = {"paired": ("good", "film"), "masked": "[MASK]"}.get(name, "good")
    with pytest.raises(InputError, match=r"^text 2: "):
        asked(name, request)([good, item])
    with pytest.raises(InputError, match=r"^text 2: "):
        list(asked(name, request)(iter([good, item])))


@pytest.mark.parametrize(
    "given", [("good", "film"), ("good", "film", "bad"), (), ("good",)], ids=repr
)
@pytest.mark.parametrize("name", ["single", "masked", "translator", "generator"])
def test_a_tuple_is_no_list_of_texts(name, given, request):
    with pytest.raises(InputError, match="give many texts as a list"):
        asked(name, request)(given)


@pytest.mark.parametrize(
    "given",
    ["good film", ["good", "film"], [["good", "film"]], (), ("good",), ("a", "b", "c"), ("a", 1)],
    ids=repr,
)
def test_only_a_tuple_of_two_texts_is_a_pair(given, paired):
    with pytest.raises(InputError, match=r"takes pairs, each a tuple of two texts|a text is a str"):
        paired.predict(given)


def test_a_wrong_model_says_so_before_any_text_is_looked_at(single, masked):
    with pytest.raises(InputError, match="was not fine-tuned"):
        masked.predict(iter([3]))
    with pytest.raises(InputError, match="predicts no tokens"):
        single.fill_mask("[MASK]")
