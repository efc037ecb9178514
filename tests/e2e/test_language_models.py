"""Language models of bytes and of tokens from a command line to their records, in this process."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch.nn import functional

from roformer.config.position import Learned
from roformer.data.bytes import PreparedBytes
from roformer.data.causal import validation_sample
from roformer.data.text import PreparedText
from roformer.data.tokenizers import ByteVocabulary
from roformer.errors import InputError
from roformer.evaluation.sampling import Sampling
from roformer.inference.generate import ByteCodec, Generator, load_generator
from roformer.models.causal import CausalLM
from tests.e2e.conftest import results
from tests.e2e.lm_runs import SMALL, small_run
from tests.e2e.test_pretrain import SUMMARY_KEYS
from tests.trained import stored

ATTENTION = {"charlm": "performer", "clm": "softmax"}
both = pytest.mark.parametrize("pipeline", SMALL)


@pytest.fixture
def where(corpus, tmp_path):
    return [*corpus, f"runtime.runs_dir={tmp_path / 'runs'}"]


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """Return pipeline → (summary, folder) of a run that learnt something."""
    found = {}

    def run(pipeline):
        if pipeline not in found:
            folder = tmp_path_factory.mktemp(pipeline)
            longer = ["training.steps=60", "training.evaluate_every=20", "model.position.base=1000"]
            where = [*corpus, f"runtime.runs_dir={folder / 'runs'}"]
            found[pipeline] = small_run(pipeline, where, *longer)
        return found[pipeline]

    return run


def direct(folder, stream, length, numbers=None):
    """The mean loss in nats of a stream, block by block, by another way."""
    description = json.loads((folder / "checkpoints" / "last" / "model.json").read_text())
    model = load_generator(folder).model
    assert isinstance(model, CausalLM) and description["length"] == 32
    tokens = torch.from_numpy(stream[:])
    total, count = 0.0, 0
    for number in numbers if numbers is not None else range(-(-(len(tokens) - 1) // length)):
        read = tokens[number * length : (number + 1) * length + 1]
        with torch.no_grad():
            logits = model(read[None, :-1])[0].double()
        total += functional.cross_entropy(logits, read[1:], reduction="sum").item()
        count += len(read) - 1
    return total / count, count


@both
def test_it_learns_more_than_frequencies_and_records_it(pipeline, trained):
    summary, folder = trained(pipeline)
    metrics = summary["metrics"]
    monitor, entropy = {
        "charlm": ("valid/bits_per_byte", "valid/unigram_bits_per_byte"),
        "clm": ("valid/loss", "valid/unigram_entropy"),
    }[pipeline]
    assert metrics[monitor] < 0.9 * metrics[entropy]
    assert summary["status"] == "done" and summary["attention"] == ATTENTION[pipeline]
    assert summary.keys() == SUMMARY_KEYS | {"attention", "baselines"}
    assert summary == json.loads((folder / "summary.json").read_text())
    assert 0 <= 60 * 8 * 32 - summary["tokens"] < 64  # the last block of an epoch is not full
    rows = results(folder)
    assert all(rows[-1][name] == value for name, value in metrics.items())
    assert [row["step"] for row in rows if monitor in row] == [20, 40, 60]
    name = "roformer-rotary-performer" if pipeline == "charlm" else "roformer-rotary"
    assert folder.name.startswith(f"{name}-smoke-")
    assert (folder / "tokenizer").is_dir() and (folder / "positions.json").is_file()


def test_the_whole_validation_and_test_text_are_what_is_reported(trained):
    """Bits per byte by a direct computation over every byte. Catches a lost last block, a sample
    in place of the whole, nats in place of bits."""
    summary, folder = trained("charlm")
    (cache,) = {path.parent for path in cache_of(folder).rglob("bytes/*/manifest.json")}
    text = PreparedBytes(cache)
    for split, name in (
        (text.valid, "valid/bits_per_byte_whole"),
        (text.test, "test/bits_per_byte"),
    ):
        nats, count = direct(folder, split, 32)
        assert count == len(split) - 1
        assert summary["metrics"][name] == pytest.approx(nats / math.log(2), rel=1e-5)
    record = json.loads((folder / "positions.json").read_text())
    (whole,) = record["lengths"]
    assert whole["tokens"] == len(text.valid) - 1
    assert whole["loss"] / math.log(2) == summary["metrics"]["valid/bits_per_byte_whole"]


def cache_of(folder):
    return Path(OmegaConf.load(folder / "config.yaml").runtime.cache_dir)


def test_the_entropy_is_that_of_the_predicted_tokens(trained):
    """The sample's entropy is computed from the shards in another way."""
    summary, folder = trained("clm")
    stream = shards_of(folder).valid
    predicted = [
        stream[32 * i + 1 : 32 * i + 33].tolist() for i in validation_sample(stream, 32, 16, 4)
    ]
    counts = np.bincount(np.ravel(predicted))
    share = counts[counts > 0] / (16 * 32)
    assert summary["metrics"]["valid/unigram_entropy"] == pytest.approx(
        -(share * np.log(share)).sum()
    )
    assert summary["metrics"]["valid/perplexity"] == pytest.approx(
        math.exp(summary["metrics"]["valid/loss"])
    )


def shards_of(folder):
    manifests = cache_of(folder).rglob("text/*/manifest.json")
    data = json.loads((folder / "env.json").read_text())["data"]
    found, *_ = [  # one text may be prepared under several keys
        path.parent for path in manifests if json.loads(path.read_text())["fingerprint"] == data
    ]
    return PreparedText(found)


def test_longer_texts_are_the_same_text(trained):
    """Read in blocks of 1, 2 and 4 times the length: by another way, token for token."""
    summary, folder = trained("clm")
    record = json.loads((folder / "positions.json").read_text())
    stream = shards_of(folder).valid
    lengths = {row["length"]: row for row in record["lengths"]}
    assert list(lengths) == [32, 64, 128] and record["left_out"] == []
    assert [row["beyond_the_paper"] for row in lengths.values()] == [False, True, True]
    assert lengths[32]["loss"] == pytest.approx(summary["metrics"]["valid/loss"], rel=1e-5)
    tokens = {row["tokens"] for row in lengths.values()}
    assert tokens == {16 * 32}
    for length, row in lengths.items():
        by_position = sum(part["loss"] * part["tokens"] for part in row["rows"])
        assert by_position / row["tokens"] == pytest.approx(row["loss"])
        assert [part["seen"] for part in row["rows"]][:4] == [[1, 1], [2, 2], [3, 4], [5, 8]]
        assert row["rows"][-1]["seen"][1] == length
        if length > 32:
            assert summary["metrics"][f"valid/loss_at_{length}"] == row["loss"]
    sample = validation_sample(stream, 32, 16, 4)
    wanted, _ = direct(folder, stream, 128, sorted({block // 4 for block in sample}))
    assert lengths[128]["loss"] == pytest.approx(wanted, rel=1e-5)


# --- generation ----------------------------------------------------------------------------------


def test_bytes_and_pieces_of_words_are_shown_as_soon_as_they_are_whole(trained):
    codec = load_generator(trained("charlm")[1]).codec
    assert list(codec.decode(iter("aé€".encode()))) == ["a", "", "é", "", "", "€", ""]
    assert "".join(codec.decode(iter(b"a\xffb\xe2\x82"))) == "a�b�"
    assert codec.encode("é") == [195, 169] and codec.encode("") == [10]
    codec = load_generator(trained("clm")[1]).codec
    ids = codec.tokenizer.encode("belin tor")
    assert "".join(codec.decode(iter(ids))) == " belin tor"
    assert codec.encode("belin") == [codec.tokenizer.sep_id, *codec.tokenizer.encode("belin")]


def test_a_learned_table_ends_a_text_and_is_not_read_longer_and_that_is_said(where):
    learned = ["model/position=learned", "model.position.max_positions=40", "training.steps=3"]
    summary, folder = small_run("clm", where, *learned)
    record = json.loads((folder / "positions.json").read_text())
    assert [row["length"] for row in record["lengths"]] == [32]
    assert [row["length"] for row in record["left_out"]] == [64, 128]
    assert record["left_out"][0]["reason"] == "no learned position beyond 32 was trained"
    assert not any("loss_at" in name for name in summary["metrics"])
    table = stored("causal", Learned(max_positions=40), tokenizer=ByteVocabulary())
    generator = Generator(table.build(), ByteCodec(), length=32)
    assert "".join(generator.generate("x" * 11, Sampling(), max_tokens=30))
    with pytest.raises(InputError, match="a prompt of 11 and 31 more are beyond the learned table"):
        generator.generate("x" * 11, Sampling(), max_tokens=31)
    with pytest.raises(InputError, match="max_tokens=0 must be at least 1"):
        generator.generate("x", Sampling(), max_tokens=0)
