"""A tiny run read at other lengths: the same tokens at each, and a record that the tables repeat."""

import json

import numpy as np
import pytest

from experiments.length_extension import measure
from experiments.length_extension.measure import (
    KINDS,
    SEGMENTS,
    Windows,
    paired_difference,
    read_at_lengths,
    score,
    with_scaling,
)
from roformer.config.build import from_yaml, to_yaml
from roformer.config.schema import PretrainConfig
from roformer.data.mlm import MaskedBatches
from roformer.data.random import IGNORED
from roformer.errors import InputError
from roformer.inference.load import load_model
from roformer.models.encoder import MaskedLM
from roformer.report.pages import script_of
from roformer.report.tables import markdown_of
from roformer.tasks.mlm import prepare
from tests.scripts import run_script

extension_tables = script_of("length_extension")["extension_tables"]
verdict = script_of("length_extension")["verdict"]
TRAINED = 32


@pytest.fixture(scope="module")
def text(run):
    config = from_yaml(PretrainConfig, (run / "config.yaml").read_text())
    return config, prepare(config)


def windows(text, *lengths, count=5) -> Windows:
    return Windows(*text, lengths, count)


def flat(windows: Windows, length: int, name: str) -> np.ndarray:
    """Return one field of all batches, one row a piece."""
    return np.concatenate([batch[name].numpy() for batch in windows.batches(length)])


def test_at_the_trained_length_pieces_are_the_frozen_validation_blocks(text):
    config, shards = text
    found = windows(text, TRAINED, 4 * TRAINED)
    settings = shards.tokenizer, config.masking, config.training
    frozen = MaskedBatches(shards.valid, *settings, None)
    numbers = {frozen.block_of(number): number for number in range(len(frozen.blocks))}
    expected = frozen[[numbers[4 * n + chunk] for n in found.numbers for chunk in range(4)]]
    for field in ("input_ids", "predict", "labels"):
        assert np.array_equal(flat(found, TRAINED, field), expected[field].numpy()), field


def test_every_length_has_the_same_masked_text(text):
    config, shards = text
    yaml = to_yaml(config).replace("whole_word: false", "whole_word: true")
    found = windows((from_yaml(PretrainConfig, yaml), shards), TRAINED, 64, 128)
    body = TRAINED - 2
    stream = np.concatenate(
        [shards.valid[n * 4 * body : (n + 1) * 4 * body] for n in found.numbers]
    )
    seen = {}
    for length in (TRAINED, 64, 128):
        step = length // TRAINED * body
        ids, predict, labels = (
            flat(found, length, field) for field in ("input_ids", "predict", "labels")
        )
        assert ids.shape == (5 * 128 // length, length)
        assert (ids[:, 0] == shards.tokenizer.cls_id).all()
        assert (ids[:, -1] == shards.tokenizer.sep_id).all()
        kept = labels != IGNORED
        assert (predict[kept] >= 1).all() and (predict[kept] <= step).all()
        place = (np.arange(len(ids)) * step)[:, None] + predict - 1
        assert np.array_equal(stream[place[kept]], labels[kept])
        seen[length] = (ids[:, 1 : 1 + step].ravel(), place[kept], labels[kept])
        # The length is exact because of where the next piece of the window begins.
        per_window = 128 // length
        for piece in range(len(ids) - 1):
            if (piece + 1) % per_window:
                after = ids[piece, 1 + step : -1]
                assert np.array_equal(after, ids[piece + 1, 1 : 1 + len(after)])
    for length in (64, 128):
        assert all(map(np.array_equal, seen[length], seen[TRAINED]))
    window, place = found.places()
    assert np.array_equal(window * 4 * body + place, seen[TRAINED][1])


def test_the_record_has_a_row_of_every_scaling_and_length(run, text):
    """Each is of the model that the config with its scaling builds."""
    record = read_at_lengths(run, [64, TRAINED], windows=4)
    rows = {(row["kind"], row["length"]): row for row in record["rows"]}
    assert list(rows) == [(kind, length) for kind in KINDS for length in (TRAINED, 64)]
    control = rows["none", TRAINED]
    for kind in KINDS:
        assert rows[kind, TRAINED]["loss"] == control["loss"]
        assert rows[kind, 64]["factor"] == (1.0 if kind == "none" else 2.0)
        assert rows[kind, TRAINED]["against_none"] == {"difference": 0.0, "standard_error": 0.0}
    assert len({rows[kind, 64]["loss"] for kind in KINDS}) == len(KINDS)
    for row in record["rows"]:
        for name, other in (("control", control), ("none", rows["none", row["length"]])):
            gap = row["loss"] - other["loss"]
            assert row[f"against_{name}"]["difference"] == pytest.approx(gap, abs=1e-12)
        assert len(row["segments"]) == SEGMENTS
    trained = load_model(run)
    for kind in ("none", "yarn"):
        scaled = with_scaling(text[0].model, kind, 64, TRAINED)
        assert (kind == "none") == (scaled == text[0].model)
        model = MaskedLM(scaled, trained.tokenizer.size).eval()
        model.load_state_dict(trained.model.state_dict())
        found = score(model, windows(text, TRAINED, 64, count=4).batches(64), "cpu", "fp32")
        row = rows[kind, 64]
        assert (row["loss"], row["accuracy"]) == (found.loss.mean(), found.correct.mean())
    assert record["tokens"] == 4 * 2 * (TRAINED - 2)
    assert not any(str(value).startswith("/") for value in record.values())


@pytest.mark.slow
def test_the_script_prints_the_tables_of_its_record(run, tmp_path):
    lengths = ("--lengths", TRAINED, 64, "--windows", 2, "--threads", 1)
    printed = run_script(measure.__file__, run, *lengths, "--output", tmp_path).stdout
    (file,) = tmp_path.glob("*.json")
    record = json.loads(file.read_text())
    assert (record["run"], file.stem) == (run.name, run.name)
    tables = markdown_of(extension_tables(file))
    assert extension_tables(file)[0].screen() in printed
    assert file.with_suffix(".md").read_text() == f"{tables}\n"
    assert run_script(measure.__file__, file, "--table").stdout.strip() == tables
    assert (tmp_path / "plots" / f"{run.name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_learned_table_is_read_up_to_its_end_and_without_scaling(runs, tmp_path):
    run = runs[1]
    with pytest.raises(InputError, match="has a learned table of 64 positions"):
        read_at_lengths(run, [128, 256], windows=2)
    record = read_at_lengths(run, [TRAINED, 64, 128], windows=2)
    assert [(row["kind"], row["length"]) for row in record["rows"]] == [
        ("none", TRAINED),
        ("none", 64),
    ]
    (tmp_path / "record.json").write_text(json.dumps(record))
    loss, *_ = extension_tables(tmp_path / "record.json")
    assert loss.lines[1][0] == "none" and loss.lines[1][-1] == "–"


@pytest.mark.parametrize(
    ("message", "lengths", "windows"),
    [
        ("each must be a multiple of the shortest", (32, 64, 96), 4),
        ("the longest may be 4 times the shortest", (8, 64), 4),
        ("two are needed", (1024, 2048), 4),
    ],
)
def test_lengths_that_do_not_fit_are_one_line(text, message, lengths, windows):
    with pytest.raises(InputError, match=message) as refusal:
        Windows(*text, lengths, windows)
    assert "\n" not in str(refusal.value)


def test_the_standard_error_is_the_one_over_window_means():
    generator = np.random.default_rng(0)
    by_window = generator.normal(size=(20, 1)) + generator.normal(size=(20, 50))
    found = paired_difference(by_window.ravel(), np.repeat(np.arange(20), 50))
    means = by_window.mean(1)
    assert found["difference"] == pytest.approx(means.mean())
    assert found["standard_error"] == pytest.approx(means.std(ddof=1) / np.sqrt(20))
