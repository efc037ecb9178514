"""Scripts that print texts: prompts of any bytes, output in any encoding, mistakes in one line."""

import io
import runpy
import sys

import pytest

from roformer.data.tokenizers import ByteVocabulary
from roformer.evaluation.sampling import Sampling
from roformer.inference.generate import load_generator
from tests.conftest import REPOSITORY
from tests.data.parallel_texts import trained as trained_bpe
from tests.trained import CASED, run_of, stored

MODELS = {
    "bytes": lambda: stored("causal", tokenizer=ByteVocabulary()),
    "words": lambda: stored("causal", tokenizer=CASED),
    "labels": lambda: stored("classifier", tokenizer=CASED, described={"labels": ["né", "été"]}),
    "one type": lambda: stored("classifier", described={"texts": ["a", "b"]}, token_types=1),
    "masked": lambda: stored("mlm", tokenizer=CASED),
    "lines": lambda: stored("translation", tokenizer=trained_bpe("bytes"), layers=3),
}
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


@pytest.mark.parametrize(
    ("script", "model", "arguments", "stdin", "message"),
    [
        ("generate", "words", GREEDY, b"caf\xc3", "stdin:1: not UTF-8"),
        ("predict", "one type", (), b"a\tb\n", "error: text 1: a pair of texts needs two token ty"),
    ],
)
def test_mistakes_are_one_line(script, model, arguments, stdin, message, call, capsys):
    with pytest.raises(SystemExit):
        call(f"scripts/{script}.py", model, *arguments, stdin=stdin)
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
