"""Tables of language models: loss by tokens seen and beyond the trained length."""

import json

import pytest

from roformer.report.figures import draw_convergence
from roformer.report.losses import loss_of
from roformer.report.ours import loss_ours
from roformer.report.positions import draw_positions, position_tables
from roformer.report.records import RecordError
from roformer.report.sections import run_tables


def record(root, pipeline, position, seed, loss, *, longer=True):
    """Write the record of a language model that was trained on 8 tokens."""
    folder = root / f"roformer-{position}-s{seed}"
    folder.mkdir(parents=True)
    name = {"clm": "valid/loss", "charlm": "valid/bits_per_byte"}[pipeline]
    worth = name.replace("valid/", "valid/unigram_").replace("loss", "entropy")
    rows = [
        {"step": s, name: loss + 10 / s, worth: 6.0, "data/samples": s, "data/tokens": 8 * s}
        for s in (10, 20)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    last = rows[-1][name]
    summary = {
        "pipeline": pipeline,
        "model": "roformer",
        "position": position,
        "seed": seed,
        "status": "done",
        "data": "builtin",
        "tokens": 160_000,
        "steps": 20,
        "metrics": {name: last, f"{name}_whole": last + 1},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    config = {"seed": seed, "model": {"position": {"kind": position}, "size": "mini"}}
    (folder / "config.yaml").write_text(json.dumps(config))
    (folder / "env.json").write_text(json.dumps({"data": "text"}))
    seen = [
        {"seen": [1, 1], "tokens": 4, "loss": loss + 2},
        {"seen": [2, 8], "tokens": 28, "loss": loss},
    ]
    lengths = [{"length": 8, "tokens": 32, "loss": loss, "rows": seen}]
    left_out = [{"length": 16, "reason": "no learned position beyond 8 was trained"}]
    if longer:
        beyond = {"seen": [9, 16], "tokens": 16, "loss": loss + 3}
        rows = [*({**row, "loss": row["loss"] + 9} for row in seen), beyond]
        lengths.append({"length": 16, "tokens": 32, "loss": loss + 1, "rows": rows})
        left_out = []
    content = {"text": "the sample", "trained_length": 8, "lengths": lengths, "left_out": left_out}
    (folder / "positions.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def runs(tmp_path):
    rotary = [record(tmp_path, "clm", "rotary", seed, 3.0 + seed / 10) for seed in (0, 1)]
    return [*rotary, record(tmp_path, "clm", "learned", 0, 4.0, longer=False)]


def test_loss_by_tokens_seen_and_by_length(runs):
    seen, beyond = position_tables(runs)
    assert list(seen.lines[1]) == ["1", "5.050 ± 0.071 (2)", "6.000 (1)"]
    assert list(seen.lines[2]) == ["2-8", "3.050 ± 0.071 (2)", "4.000 (1)"]
    assert list(beyond.lines[1]) == ["8 (trained)", "3.050 ± 0.071 (2)", "4.000 (1)"]
    assert list(beyond.lines[2]) == ["16", "4.050 ± 0.071 (2)", "–"]
    assert beyond.notes[0].startswith("Beyond the paper: ")
    assert "no learned position beyond 8 was trained" in beyond.notes[1]


def test_where_the_trained_length_alone_was_read_nothing_is_beyond(runs):
    assert [table.title for table in position_tables(runs[2:])] == [
        "Loss by how many tokens are seen"
    ]


def test_language_models_have_the_tables_of_pre_training(runs):
    titles = [table.title for table in run_tables(runs, "rotary")]
    assert titles[0] == "valid/loss at equal updates" and "tokens are seen" in titles[-2]
    assert "Updates until valid/loss is that of another arm" in titles


def test_bytes_are_told_in_bits_and_the_whole_text_counts(tmp_path):
    run = record(tmp_path, "charlm", "rotary", 0, 2.0)
    (row,) = loss_ours([run])
    assert row.values == {"bits per byte": "3.500 (1)"}
    assert "0.2 M bytes in 20 updates" in row.setting
    titles = [table.title for table in run_tables([run])]
    assert titles[0] == "valid/bits_per_byte at equal updates"
    caption = draw_convergence([run], tmp_path / "figure.png")
    assert caption.startswith("Bits per byte on validation text against updates and against bytes")


def test_a_performer_is_told_from_a_roformer_and_tables_count_bytes(tmp_path):
    run, other = (record(tmp_path / name, "charlm", "rotary", 0, 2.0) for name in "ab")
    summary = json.loads((other / "summary.json").read_text()) | {"attention": "performer"}
    (other / "summary.json").write_text(json.dumps(summary))
    config = {"seed": 0, "model": {"size": "mini", "attention": {"kind": "performer"}}}
    (other / "config.yaml").write_text(json.dumps(config))
    tables = run_tables([run, other.rename(tmp_path / "b" / "performer")])
    names = ["roformer (rotary)", "performer (rotary)"]
    assert list(tables[0].lines[0]) == ["updates", "sequences", "bytes", *names]
    assert "bytes" in tables[2].lines[0] and "tokens" not in tables[2].lines[0]
    assert list(tables[-2].lines[0]) == ["bytes seen", *names]


def test_an_entropy_far_above_all_curves_is_told_and_not_drawn(tmp_path):
    run = record(tmp_path, "charlm", "rotary", 0, 2.0)  # 3.0 and 2.5 bits
    near, far = (f'"valid/unigram_bits_per_byte": {worth}' for worth in (3.2, 6.0))
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace(far, near))
    assert "Dotted: the unigram entropy" in draw_convergence([run], tmp_path / "near.png")
    metrics.write_text(metrics.read_text().replace(near, far))
    caption = draw_convergence([run], tmp_path / "far.png")
    assert "Not shown: the unigram entropy of the predicted bytes, 6.000 bits, far above" in caption


def test_the_figure_shows_the_trained_length_and_only_beyond_it_the_longer(
    runs, tmp_path, monkeypatch
):
    drawn = []
    monkeypatch.setattr(
        "roformer.report.positions.draw", lambda path, data, *rest: drawn.append(data[2])
    )
    draw_positions(runs, tmp_path / "figure.png")
    assert drawn[0]["roformer (rotary)"] == [
        (1.0, pytest.approx(5.05)),
        (4.0, pytest.approx(3.05)),
        (12.0, pytest.approx(6.05)),
    ]
    assert len(drawn[0]["roformer (learned)"]) == 2


def test_the_figure_goes_beyond_the_trained_length(runs, tmp_path):
    caption = draw_positions(runs, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").is_file()
    assert (
        "blocks of 8 (dotted)" in caption and "beyond the paper, in blocks of up to 16" in caption
    )
    with pytest.raises(RecordError, match=r"has a positions\.json"):
        draw_positions([], tmp_path / "other.png")


def test_runs_of_several_pipelines_have_no_common_loss(runs, tmp_path):
    other = record(tmp_path / "bytes", "charlm", "rotary", 0, 2.0)
    with pytest.raises(RecordError, match=r"is a run of clm, .* of charlm"):
        loss_of([*runs, other])


def test_a_damaged_file_is_one_line(runs):
    (runs[0] / "positions.json").write_text('{"text": "x"}')
    with pytest.raises(
        RecordError, match=r"positions\.json is not what a run wrote: trained_length"
    ):
        position_tables(runs)
