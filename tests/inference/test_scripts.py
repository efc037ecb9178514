"""Scripts that print texts: prompts of any bytes, output in any encoding, mistakes in one line."""

import io
import runpy
import sys

import pytest

from roformer.data.tokenizers import ByteVocabulary
from roformer.evaluation.sampling import Sampling
from roformer.inference.generate import load_generator
from roformer.inference.translate import load_translator
from tests.conftest import REPOSITORY
from tests.data.parallel_texts import trained as trained_bpe
from tests.trained import CASED, LENGTH, run_of, stored

MODELS = {
    "bytes": lambda: stored("causal", tokenizer=ByteVocabulary()),
    "words": lambda: stored("causal", tokenizer=CASED),
    "labels": lambda: stored("classifier", tokenizer=CASED, described={"labels": ["né", "été"]}),
    "pairs": lambda: stored("classifier", described=PAIRS),
    "one type": lambda: stored("classifier", described={"texts": ["a", "b"]}, token_types=1),
    "masked": lambda: stored("mlm", tokenizer=CASED),
    "lines": lambda: stored("translation", tokenizer=trained_bpe("bytes"), layers=3),
}
PAIRS = {"labels": ["yes", "no"], "texts": ["a", "b"]}
GREEDY = ("--max-tokens", "4", "--temperature", "0", "--device", "cpu")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {name: run_of(folder / name, model()) for name, model in MODELS.items()}


@pytest.fixture
def call(runs, monkeypatch):
    """Return what runs a script with a model and returns the bytes that it printed."""
    monkeypatch.setattr("roformer.training.process.tune_process", lambda **_: {})

    def called(script, model, *arguments, stdin=b"", encoding="utf-8"):
        printed = io.BytesIO()
        monkeypatch.setattr(sys, "argv", [script, str(runs[model]), *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding, newline="\n"))
        runpy.run_path(str(REPOSITORY / script), run_name="__main__")
        sys.stdout.flush()
        return printed.getvalue()

    return called


PROMPTS = [b"a\r\nb\n", b"caf\xc3", b"\xef\xbb\xbfa", b"\xff\x00a", "é€".encode(), b""]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_model_of_bytes_is_given_the_bytes_of_stdin(prompt, call, runs):
    """An incomplete character at the end is completed, or not, by the continuation."""
    generator = load_generator(runs["bytes"])
    ids = list(generator.draw([*prompt] or [10], Sampling(temperature=0), 4, seed=0))
    expected = (prompt + bytes(ids)).decode(errors="replace") + "\n"
    assert call("scripts/generate.py", "bytes", *GREEDY, stdin=prompt) == expected.encode()
    given = ["--prompt", prompt.decode(errors="surrogateescape")]
    assert call("scripts/generate.py", "bytes", *GREEDY, *given) == expected.encode()


@pytest.mark.parametrize(
    ("script", "model", "arguments"),
    [
        ("scripts/generate.py", "bytes", GREEDY),
        ("scripts/generate.py", "words", GREEDY),
        ("scripts/predict.py", "labels", ()),
        ("scripts/translate.py", "lines", ("--beam", "1")),
        ("examples/fill_mask.py", "masked", ("été [MASK]",)),
    ],
)
def test_characters_that_the_output_lacks_are_question_marks(script, model, arguments, call):
    text = "été 中".encode()
    expected = call(script, model, *arguments, stdin=text).decode()
    found = call(script, model, *arguments, stdin=text, encoding="ascii")
    assert found == expected.encode("ascii", errors="replace") and b"?" in found


def test_a_seed_gives_one_text_and_the_end_of_the_trainings_texts_is_noted(call, capsys):
    words = ("scripts/generate.py", "words", "--prompt", "the cat", "--device", "cpu")
    texts = [call(*words, "--max-tokens", "20", "--seed", seed) for seed in "556"]
    assert texts[0] == texts[1] != texts[2] and capsys.readouterr().err == ""
    call(*words, "--max-tokens", "39", "--top-k", "2")
    assert capsys.readouterr().err == f"beyond the {LENGTH} tokens of the training's texts\n"


def test_a_long_line_is_classified_and_noted(call, capsys):
    rows = call("scripts/predict.py", "pairs", stdin=b"a b\tc d\nlong " + b"x " * 60 + b"\ty\n")
    assert {row.split(b"\t")[0] for row in rows.splitlines()} <= {b"yes", b"no"}
    assert len(rows.splitlines()) == 2
    assert capsys.readouterr().err == "line 2 is longer than 24 tokens and was cut\n"


def test_translations_have_the_order_of_the_lines(call, runs, capsys):
    """Whatever their lengths; an empty line stays empty."""
    source = "old cat\n\ndog\n" + "a " * 60 + "\n"
    lines = call("scripts/translate.py", "lines", stdin=source.encode()).decode().split("\n")
    best = load_translator(runs["lines"]).translate(source.splitlines())
    assert lines == [*(hypotheses[0].text for hypotheses in best), ""] and lines[1] == ""
    assert capsys.readouterr().err == "line 4 is longer than 30 tokens and was cut\n"
    three = call("scripts/translate.py", "lines", "--n-best", "3", stdin=b"old cat\ndog\n")
    rows = [line.split("\t") for line in three.decode().splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    assert [row[2] for row in rows[::3]] == [lines[0], lines[2]]
    for scores in ([float(row[1]) for row in rows[first : first + 3]] for first in (0, 3)):
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("script", "model", "arguments", "stdin", "message"),
    [
        ("generate", "words", GREEDY, b"caf\xc3", "stdin:1: not UTF-8"),
        ("generate", "bytes", ("--temperature", "-1"), b"", "error: temperature=-1.0 must be at"),
        ("predict", "one type", (), b"a\tb\n", "error: text 1: a pair of texts needs two token ty"),
        ("predict", "pairs", (), b"one\n", "error: line 1 has 1 tab-separated texts, but the task"),
        ("translate", "lines", (), b"dog\nca\xfft\n", "error: stdin:2: not UTF-8"),
        ("translate", "lines", ("--n-best", "9"), b"", "error: n_best=9 is not from 1 to beam=4"),
    ],
)
def test_mistakes_are_one_line(script, model, arguments, stdin, message, call, capsys):
    with pytest.raises(SystemExit):
        call(f"scripts/{script}.py", model, *arguments, stdin=stdin)
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
