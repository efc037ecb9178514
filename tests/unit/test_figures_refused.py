"""Records that no figure can be drawn from are told in a line."""

import json

import pytest

from roformer.report.decay_figures import draw_bound, draw_decay_by_layer, draw_measured_decay
from roformer.report.figures import draw_bleu, draw_convergence, draw_glue, draw_speed
from roformer.report.records import RecordError
from tests.unit.figure_records import change, decay_record, pretraining


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t, out: draw_convergence([], out), "none of these runs"),
        (lambda t, out: draw_glue([], out), "none of these runs"),
        (lambda t, out: draw_bleu([], out), "none of these runs"),
        (lambda t, out: draw_speed(t, out), "has no rotary.json"),
        (lambda t, out: draw_convergence([t], out), "summary.json cannot be read"),
        (lambda t, out: draw_glue([t], out), "has no summary.json"),
        (lambda t, out: draw_bleu([t], out), "has no summary.json"),
        (lambda t, out: draw_bound(t / "none.json", out), "cannot be read"),
        (lambda t, out: draw_measured_decay(emptied(t), out), "has no runs"),
        (lambda t, out: draw_decay_by_layer(initial(t), out), "has no trained run"),
        (lambda t, out: draw_convergence([pretraining(t / "r", 0, [])], out), "metrics.jsonl"),
        (lambda t, out: draw_convergence([torn(t)], out), "metrics.jsonl:2 is not what a run"),
        (lambda t, out: draw_convergence(twice(t), out), "settings and seed of another"),
        (lambda t, out: draw_convergence(apart(t), out), "no evaluation at the same update"),
        (lambda t, out: draw_speed(negative(t), out), "not positive: x"),
    ],
)
def test_what_cannot_be_drawn_is_told_in_a_line(tmp_path, call, message):
    with pytest.raises(RecordError, match=message) as refusal:
        call(tmp_path, tmp_path / "figure.png")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "figure.png").exists()


def emptied(folder):
    file = decay_record(folder / "decay.json")
    change(file, runs=[])
    return file


def initial(folder):
    file = decay_record(folder / "decay.json")
    change(file, runs=json.loads(file.read_text())["runs"][1:])
    return file


def torn(folder):
    run = pretraining(folder / "run", 0, [5.0, 4.0])
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text()[:-20])
    return run


def twice(folder):
    return [pretraining(folder / name, 0, [5.0]) for name in ("one", "two")]


def apart(folder):
    one, two = (pretraining(folder / f"s{seed}", seed, [5.0]) for seed in range(2))
    text = (two / "metrics.jsonl").read_text()
    (two / "metrics.jsonl").write_text(text.replace('"step": 100', '"step": 150'))
    return [one, two]


def negative(folder):
    row = {"what": "x", "ratio": -1.0, "goal": None, "deviations": ""}
    (folder / "like.json").write_text(json.dumps({"rows": [row]}))
    return folder
