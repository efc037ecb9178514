"""The figures of the report: what they draw of the records."""

import pytest

from roformer.report import drawing
from roformer.report.figures import FIGURES
from roformer.report.runs import RecordError, read_runs
from tests.report.records import curve, record


@pytest.fixture
def drawn(monkeypatch):
    """Return a function from a figure's kind and its records to the drawn frame, panels and style."""
    kept = {}

    def curves(output, frame, panels, style, **more):
        kept.update(frame=frame, panels=panels, style=style)

    monkeypatch.setattr(drawing, "draw_curves", curves)

    def call(kind, source):
        FIGURES[kind][0](read_runs(source), None)
        return kept["frame"], kept

    return call


def loss_run(folder, seed, losses, tokens=8192, **more):
    rows = curve(losses, tokens=tokens, **{"valid/unigram_entropy": 5.5})
    return record(folder, rows=rows, seed=seed, **more)


def test_convergence_is_of_ended_runs_against_steps_with_a_near_entropy(drawn, tmp_path):
    """A mean is as long as its shortest curve; the legend has the order of the right ends."""
    failed = {"status": "failed", "error": "Diverged: the loss of step 101 is nan"}
    runs = [
        loss_run(tmp_path / "r0", 0, [5.0, 4.0, 3.0]),
        loss_run(tmp_path / "r1", 1, [5.4, 4.2, 3.2]),
        loss_run(tmp_path / "b0", 0, [6.0, 5.5, 5.2], model="bert", position="learned"),
        loss_run(tmp_path / "r2", 2, [5.0], **failed),
        record(tmp_path / "r3", rows=[{"step": 20}], seed=3, **failed),
    ]
    frame, kept = drawn("convergence", runs)
    assert frame.x.tolist() == 3 * [100, 200, 300] and set(frame.panel) == {0}
    assert list(kept["style"]) == ["bert (learned)", "roformer (rotary)"]
    assert [place for panel in kept["panels"] for _, place, _ in panel.references] == [5.5]
    _, kept = drawn("convergence", [loss_run(tmp_path / "far", 0, [2.0, 1.9])])
    assert not any(panel.references for panel in kept["panels"])


def test_convergence_is_against_tokens_too_where_steps_differ_in_them(drawn, tmp_path):
    twice = loss_run(tmp_path / "b", 0, [5.4, 4.2], 16384, model="bert")
    frame, _ = drawn("convergence", [loss_run(tmp_path / "r", 0, [5.0, 4.0]), twice])
    steps, tokens = (frame[frame.panel == number] for number in (0, 1))
    assert steps.y.tolist() == tokens.y.tolist() and steps.x.tolist() == 2 * [100, 200]
    assert tokens.x.tolist() == pytest.approx([0.8192, 1.6384, 1.6384, 3.2768])


def test_positions_take_the_longer_blocks_only_beyond_the_trained_length(drawn, tmp_path):
    def run(seed, loss):
        blocks = {8: [[1, 1], [2, 8]], 16: [[1, 8], [9, 16]]}
        rows = {n: [{"seen": s, "loss": loss + n} for s in seen] for n, seen in blocks.items()}
        lengths = [{"length": n, "loss": loss, "rows": rows[n]} for n in blocks]
        about = {"text": "all", "trained_length": 8, "lengths": lengths, "left_out": []}
        files = {"positions.json": about}
        return record(tmp_path / f"s{seed}", seed=seed, pipeline="clm", files=files)

    frame, kept = drawn("positions", [run(0, 3.0), run(1, 3.2)])
    assert frame.groupby("x").y.mean().to_dict() == pytest.approx({1: 11.1, 4: 11.1, 12: 19.1})
    assert kept["panels"][0].references[0][:2] == ("x", 8)


def test_runs_without_positions_are_an_error(tmp_path):
    with pytest.raises(RecordError, match=r"has a positions\.json"):
        FIGURES["positions"][0](read_runs([]), tmp_path / "figure.png")
