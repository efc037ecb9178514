"""Figures out of records: they show the numbers, stay as they are, and take any name as text."""

import json

import pytest
from matplotlib.text import Text
from PIL import Image

from roformer.report import drawing
from roformer.report.drawing import COLOURS, DIGEST, draw, fingerprint, looks, shown
from roformer.report.figures import (
    draw_bleu,
    draw_bound,
    draw_convergence,
    draw_decay_by_layer,
    draw_glue,
    draw_measured_decay,
    draw_positions,
    draw_speed,
)
from roformer.report.runs import RecordError, read_runs
from tests.conftest import REPOSITORY
from tests.recorded_runs import EXPERIMENTS, recorded, write_folder
from tests.report.figure_records import change_file, decay_record
from tests.report.records import change, curve, record
from tests.report.test_curves import language_model
from tests.report.test_glue import cell
from tests.report.test_wmt import scored

EVIL = "$\\frac{a\n$_{x}|<b>\u2028 🜏"


def pretraining(folder, seed, losses, **more):
    """Write the record of a run with a loss at every 100 steps."""
    rows = curve(losses, samples=64, tokens=8192, **{"valid/unigram_entropy": 5.5})
    config = {
        "model": {"layers": 4, "hidden_size": 256},
        "training": {"steps": 300, "batch_size": 64, "sequence_length": 128},
    }
    return record(folder, rows=rows, seed=seed, config=config, **more)


@pytest.fixture
def decay(tmp_path):
    return decay_record(tmp_path / "decay.json")


@pytest.fixture
def figures(monkeypatch):
    """Return a list to which every figure that is drawn is added."""
    drawn = []

    class Kept(drawing.Figure):
        def savefig(self, *args, **kwargs):
            super().savefig(*args, **kwargs)
            drawn.append(self)

    monkeypatch.setattr(drawing, "Figure", Kept)
    return drawn


RECORDED = {
    "convergence": lambda path, decay: draw_convergence(
        read_runs([EXPERIMENTS / "pretraining_builtin"]), path
    ),
    "glue": lambda path, decay: draw_glue(read_runs([EXPERIMENTS / "glue_builtin"]), path),
    "glue, seeds": lambda path, decay: draw_glue(read_runs([EXPERIMENTS / "glue_real"]), path),
    "bleu": lambda path, decay: draw_bleu(read_runs([EXPERIMENTS / "wmt_multi30k"]), path),
    "speed": lambda path, decay: draw_speed(EXPERIMENTS / "speed", path),
    "bound": lambda path, decay: draw_bound(decay, path),
    "decay": lambda path, decay: draw_measured_decay(decay, path),
    "decay by layer": lambda path, decay: draw_decay_by_layer(decay, path),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_figure_is_drawn_once_and_the_same_everywhere(name, decay, tmp_path):
    one, other = tmp_path / "plots" / "one.png", tmp_path / "other.png"
    caption = RECORDED[name](one, decay)
    with Image.open(one) as image:
        assert image.format == "PNG" and round(image.info["dpi"][0]) == 150
        assert len(image.info[DIGEST]) == 64
    first = one.stat()
    assert RECORDED[name](one, decay) == caption
    assert (one.stat().st_mtime_ns, one.stat().st_ino) == (first.st_mtime_ns, first.st_ino)
    assert RECORDED[name](other, decay) == caption
    assert one.read_bytes() == other.read_bytes()
    assert caption.isprintable() and caption.endswith(".")
    assert str(REPOSITORY) not in caption and list(tmp_path.glob("**/.*")) == []


def test_captions_say_how_many_and_at_which_scale(decay, tmp_path):
    captions = {name: call(tmp_path / "x.png", decay) for name, call in RECORDED.items()}
    scale = "Scale: 4 layers × 256; 600 updates of 64 sequences of 128 tokens (4.9 M tokens)."
    assert captions["convergence"].endswith(f"Seeds: 1 a configuration. {scale}")
    assert "unigram entropy of the predicted tokens, 5.610 nats" in captions["convergence"]
    assert "Seeds: roformer (rotary) 1-5, bert (learned) 1-5." in captions["glue, seeds"]
    assert "test_2016_flickr (1,000 lines)" in captions["bleu"]
    assert "34 comparisons" in captions["speed"] and "21 of 22 goals" in captions["speed"]
    assert "4 validation sequences of 16 tokens" in captions["decay"]
    assert "head sizes 64, 128" in captions["bound"]


def test_a_file_is_drawn_again_when_what_it_shows_has_changed(tmp_path):
    path = tmp_path / "figure.png"
    run = write_folder(recorded("pretraining_builtin")[0], tmp_path / "run")
    draw_convergence(read_runs([run]), path)
    before = path.read_bytes()
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(text.replace('"perf/', '"other/'))
    draw_convergence(read_runs([run]), path)
    assert path.read_bytes() == before, "what is not drawn has changed"
    rows = [json.loads(line) for line in text.splitlines()]
    loss = max(row.get("valid/mlm_loss", 0) for row in rows)
    (run / "metrics.jsonl").write_text(text.replace(str(loss), str(loss + 1e-9)))
    draw_convergence(read_runs([run]), path)
    assert path.read_bytes() != before


@pytest.mark.parametrize("damage", [lambda b: b[:-30], lambda b: b"", lambda b: b[:200], None])
def test_what_is_no_whole_figure_is_drawn_again(decay, tmp_path, damage):
    path = tmp_path / "figure.png"
    draw_bound(decay, path)
    whole = path.read_bytes()
    if damage is None:  # a picture without a fingerprint
        Image.new("RGB", (3, 3)).save(path)
    else:
        path.write_bytes(damage(whole))
    assert drawing.recorded(path) is None
    draw_bound(decay, path)
    assert path.read_bytes() == whole


def test_the_fingerprint_is_of_data_and_drawing(tmp_path, monkeypatch):
    path = tmp_path / "figure.png"
    assert draw(path, ["a", 1.0], (1, 1), lambda figure: None)
    assert drawing.recorded(path) == fingerprint(["a", 1.0]) != fingerprint(["a", 1.5])
    assert not draw(path, ["a", 1.0], (1, 1), lambda figure: None)
    monkeypatch.setattr(drawing, "DRAWN", drawing.DRAWN + 1)
    assert draw(path, ["a", 1.0], (1, 1), lambda figure: None)


def test_drawing_leaves_the_settings_of_the_process_alone(decay, tmp_path, monkeypatch):
    """And does not depend on them."""
    draw_bound(decay, tmp_path / "plain.png")
    monkeypatch.setitem(drawing.matplotlib.rcParams, "lines.linestyle", "--")
    monkeypatch.setitem(drawing.matplotlib.rcParams, "font.size", 30.0)
    before = dict(drawing.matplotlib.rcParams)
    draw_bound(decay, tmp_path / "odd.png")
    assert dict(drawing.matplotlib.rcParams) == before
    assert (tmp_path / "odd.png").read_bytes() == (tmp_path / "plain.png").read_bytes()


def test_an_encoding_has_one_colour_and_its_configurations_look_different():
    found = looks({"b": "learned", "a": "rotary", "a2": "rotary", "new": "fourier"})
    assert list(found) == ["a", "a2", "b", "new"]
    assert found["a"].colour == found["a2"].colour == COLOURS["rotary"]
    assert found["a"].dash != found["a2"].dash and found["a"].hatch != found["a2"].hatch
    assert found["a"].marker != found["a2"].marker
    assert found["b"].colour == COLOURS["learned"]
    assert found["new"].colour not in COLOURS.values()
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_long_names_are_broken_and_cut_in_the_middle():
    assert shown("roformer (rotary)") == "roformer (rotary)"
    long = shown("begin " + "x" * 500 + " end")
    assert long.startswith("begin") and long.endswith("end") and "…" in long
    assert max(map(len, long.split("\n"))) <= 34 and long.count("\n") <= 3
    assert shown("") == "?"


def test_convergence_shows_the_mean_and_the_seeds_against_updates_and_tokens(figures, tmp_path):
    runs = [
        pretraining(tmp_path / "r0", 0, [5.0, 4.0, 3.0]),
        pretraining(tmp_path / "r1", 1, [5.4, 4.2, 3.2]),
        pretraining(tmp_path / "b0", 0, [6.0, 5.5, 5.2], model="bert", position="learned"),
    ]
    caption = draw_convergence(read_runs(runs), tmp_path / "figure.png")
    assert "Seeds: roformer (rotary) 2, bert (learned) 1." in caption
    left, right = figures[0].axes
    for axes, places in ((left, [100, 200, 300]), (right, [0.8192, 1.6384, 2.4576])):
        rotary = [line for line in axes.get_lines() if line.get_color() == COLOURS["rotary"]]
        mean, *seeds = [list(line.get_ydata()) for line in rotary]
        assert mean == pytest.approx([5.2, 4.1, 3.1])
        assert seeds == [[5.0, 4.0, 3.0], [5.4, 4.2, 3.2]]
        assert list(rotary[0].get_xdata()) == pytest.approx(places)
        (band,) = axes.collections
        assert band.get_paths()[0].get_extents().intervaly == pytest.approx([3.0, 5.4])
        (learned,) = [line for line in axes.get_lines() if line.get_color() == COLOURS["learned"]]
        assert list(learned.get_ydata()) == [6.0, 5.5, 5.2]
        assert [5.5, 5.5] in [list(line.get_ydata()) for line in axes.get_lines()]
    assert left.get_xlabel() == "updates" and right.get_xlabel() == "tokens (millions)"
    assert left.get_ylabel() == "masked-LM loss (nats)"


def test_glue_shows_the_chosen_rate_by_task(figures, tmp_path):
    runs = [
        *(cell(tmp_path, s, 5e-5, v) for s, v in enumerate((0.5, 0.6))),
        *(cell(tmp_path, s, 2e-5, v) for s, v in enumerate((0.80, 0.84))),
        cell(tmp_path, 0, 2e-5, None, task="stsb"),
    ]
    draw_glue(read_runs(runs), tmp_path / "figure.png")
    (axes,) = figures[0].axes
    (bar,) = axes.patches
    assert bar.get_height() == pytest.approx(82)
    (points,) = [line for line in axes.get_lines() if line.get_marker() == "o"]
    assert list(points.get_ydata()) == pytest.approx([80, 84])
    error, *majority = (c.get_segments()[0] for c in axes.collections)
    spread = 2 * 2**0.5
    assert [y for _, y in error] == pytest.approx([82 - spread, 82 + spread])
    heights = [y for line in majority for _, y in line]
    assert len(majority) == 2 and heights == pytest.approx([81.22] * 4)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["mrpc\nf1", "stsb\nf1"]
    assert "n/a" in [text.get_text() for text in axes.texts]


def test_bleu_shows_seeds_and_intervals_over_lines(figures, tmp_path):
    runs = [scored(tmp_path / f"r{s}", s, bleu) for s, bleu in enumerate((27.0, 28.0))]
    runs.append(scored(tmp_path / "s0", 0, 26.0, position="sinusoidal"))
    runs.append(scored(tmp_path / "f0", 1, 26.0, position="sinusoidal", status="failed"))
    assert "bands" not in draw_bleu(read_runs(runs), tmp_path / "figure.png")
    lines = list(figures[0].axes[0].get_lines())
    assert [list(line.get_xdata()) for line in lines] == [[27.0, 28.0], [27.5], [26.0]]
    assert [text.get_text() for text in figures[0].axes[0].get_yticklabels()] == [
        "transformer (rotary)",
        "transformer (sinusoidal)",
    ]
    other = scored(tmp_path / "o0", 0, 20.0, lines=3000, alpha=1.0)
    draw_bleu(read_runs([*runs, other]), tmp_path / "two.png")
    assert len(figures[-1].axes) == 2, "scores of two test sets stand in one panel"
    caption = draw_bleu(read_runs([EXPERIMENTS / "wmt_builtin"]), tmp_path / "banded.png")
    (low, high), *_ = (line.get_xdata() for line in figures[-1].axes[0].get_lines())
    assert "bands: 95 % over the test lines" in caption and low < high


def test_speed_shows_ratios_and_goals(figures, tmp_path):
    rows = [
        {"what": "fast", "ratio": 3.0, "goal": 2.0, "deviations": "none"},
        {"what": "slow", "ratio": 0.5, "goal": 4.0, "deviations": "none"},
        {"what": "free", "ratio": 1.5, "goal": None, "deviations": "none"},
    ]
    (tmp_path / "like.json").write_text(json.dumps({"rows": rows}))
    (tmp_path / "kernels.json").write_text(json.dumps({"rows": rows}))
    caption = draw_speed(tmp_path, tmp_path / "figure.png")
    assert "3 comparisons" in caption and "1 of 2 goals" in caption
    (axes,) = figures[0].axes
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
    assert ends == pytest.approx([3.0, 0.5, 1.5])
    met, missed, free = (bar.get_facecolor() for bar in axes.patches)
    assert len({met, missed, free}) == 3
    assert [c.get_segments()[0][0][0] for c in axes.collections] == [2.0, 4.0]
    assert axes.get_xscale() == "log"
    assert "$" not in "".join(text.get_text() for text in axes.get_xticklabels())


def test_the_bound_and_the_measured_curves_are_those_of_the_record(figures, tmp_path):
    file = decay_record(tmp_path / "decay.json", seeds=(0, 1))
    draw_bound(file, tmp_path / "bound.png")
    draw_measured_decay(file, tmp_path / "decay.png")
    draw_decay_by_layer(file, tmp_path / "layers.png")
    bound, measured, layers = figures
    assert [list(line.get_ydata()) for line in bound.axes[0].get_lines()] == [
        [16.5, 10.0, 9.0],
        [32.5, 20, 18],
    ]
    near = [1 / (r + 1) for r in range(16)]
    for axes, start in zip(measured.axes, (2, 3), strict=True):  # centred, weight
        drawn = [(line.get_linestyle(), line.get_ydata()) for line in axes.get_lines()]
        means = [(dash, list(y)) for dash, y in drawn[::3]]
        assert [dash for dash, _ in means] == ["-", ":"]
        assert means[0][1] == pytest.approx([1.5 * start * y for y in near])
        assert means[1][1] == pytest.approx([11.5 * start * y for y in near])
    for axes, start in zip(layers.axes, (101, 201), strict=True):
        assert list(axes.get_lines()[0].get_ydata()) == pytest.approx(
            [1.5 * start * y for y in near]
        )
        assert len(axes.get_lines()) == 3, "the initial weights are not drawn by layer"


def evil_names(tmp_path):
    """Return what draws each figure from records full of names that are no names."""
    decay = decay_record(tmp_path / "evil.json", model=EVIL, position=EVIL)
    names = (EVIL, "_hidden", "x" * 5000)
    curves = [
        pretraining(tmp_path / f"c{i}", 0, [5.0, 4.0], model=name, position=name)
        for i, name in enumerate(names)
    ]
    glue = cell(tmp_path / "glue", 0, 2e-5, 0.8)
    change(glue, model=EVIL, task=EVIL, headline=f"{EVIL}/f1", position=EVIL)
    change(glue, majority={f"{EVIL}/f1": 0.5}, metrics={f"{EVIL}/f1": 0.5})
    wmt = scored(tmp_path / "wmt", 0, 27.0)
    test_set = {"name": EVIL, "lines": 3, "fingerprint": EVIL}
    change(wmt, model=EVIL, test_set=test_set, position=EVIL)
    (tmp_path / "speed").mkdir()
    row = {"what": EVIL, "ratio": 1.5, "goal": None, "deviations": EVIL}
    (tmp_path / "speed" / "like.json").write_text(json.dumps({"rows": [row]}))
    return {
        "convergence": lambda path: draw_convergence(read_runs(curves), path),
        "glue": lambda path: draw_glue(read_runs([glue]), path),
        "bleu": lambda path: draw_bleu(read_runs([wmt]), path),
        "speed": lambda path: draw_speed(tmp_path / "speed", path),
        "decay": lambda path: draw_measured_decay(decay, path),
        "decay by layer": lambda path: draw_decay_by_layer(decay, path),
    }


def test_names_are_drawn_as_text(figures, tmp_path):
    """A dollar begins no formula, an underscore hides no name, and a line end is spelt out."""
    for name, call in evil_names(tmp_path).items():
        caption = call(tmp_path / f"{name}.png")
        assert caption.isprintable(), name
        texts = [text for text in figures[-1].findobj(Text) if text.get_text()]
        assert not any(text.get_parse_math() for text in texts), name
        joined = "".join(text.get_text() for text in texts).replace("\n", "").replace(" ", "")
        assert "$\\frac{a\\n$_{x}|<b>" in joined, name
        assert figures[-1].get_figheight() < 20 and figures[-1].get_figwidth() < 12
        if name == "convergence":
            assert "_hidden" in joined


# --- positions, and what cannot be drawn ---------------------------------------------------------


def test_positions_show_the_trained_length_and_only_beyond_it_the_longer(figures, tmp_path):
    runs = [language_model(tmp_path, "clm", "rotary", seed, 3.0 + seed / 10) for seed in (0, 1)]
    runs.append(language_model(tmp_path, "clm", "learned", 0, 4.0, longer=False))
    caption = draw_positions(read_runs(runs), tmp_path / "figure.png")
    lines = [line for line in figures[0].axes[0].get_lines() if len(line.get_xdata()) > 2]
    assert [tuple(point) for line in lines for point in line.get_xydata()] == [
        (1.0, pytest.approx(5.05)),
        (4.0, pytest.approx(3.05)),
        (12.0, pytest.approx(6.05)),
    ]
    assert "blocks of 8 (dotted)" in caption and "in blocks of up to 16" in caption


def test_an_entropy_far_above_all_curves_is_told_and_not_drawn(tmp_path):
    run = language_model(tmp_path, "charlm", "rotary", 0, 2.0)  # 3.0 and 2.5 bits
    caption = draw_convergence(read_runs([run]), tmp_path / "far.png")
    assert caption.startswith("Bits per byte on validation text against updates and against bytes")
    assert "Not shown: the unigram entropy of the predicted bytes, 6.000 bits, far above" in caption


def emptied(folder, **values):
    return change_file(decay_record(folder / "decay.json"), **values)


def initial(folder):
    file = decay_record(folder / "decay.json")
    return change_file(file, runs=json.loads(file.read_text())["runs"][1:])


def slower(folder):
    row = {"what": "x", "ratio": -1.0, "goal": None, "deviations": "none"}
    (folder / "like.json").write_text(json.dumps({"rows": [row]}))
    return folder


def apart(folder):
    one, two = (pretraining(folder / f"s{seed}", seed, [5.0]) for seed in range(2))
    text = (two / "metrics.jsonl").read_text()
    (two / "metrics.jsonl").write_text(text.replace('"step": 100', '"step": 150'))
    return [one, two]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t, out: draw_convergence(read_runs([]), out), "none of these runs"),
        (lambda t, out: draw_glue(read_runs([]), out), "none of these runs"),
        (lambda t, out: draw_bleu(read_runs([]), out), "none of these runs"),
        (lambda t, out: draw_positions(read_runs([]), out), r"has a positions\.json"),
        (lambda t, out: draw_glue(read_runs([t]), out), "has no summary.json"),
        (lambda t, out: draw_bleu(read_runs([t]), out), "has no summary.json"),
        (lambda t, out: draw_bound(t / "none.json", out), "cannot be read"),
        (lambda t, out: draw_measured_decay(emptied(t, runs=[]), out), "has no runs"),
        (lambda t, out: draw_decay_by_layer(initial(t), out), "has no trained run"),
        (lambda t, out: draw_convergence(read_runs(apart(t)), out), "no evaluation at the same"),
        (lambda t, out: draw_speed(t, out), "has no rotary.json"),
        (lambda t, out: draw_speed(slower(t), out), "row 1, ratio: not a positive number"),
    ],
)
def test_what_cannot_be_drawn_is_told_in_a_line(tmp_path, call, message):
    with pytest.raises(RecordError, match=message) as refusal:
        call(tmp_path, tmp_path / "figure.png")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "figure.png").exists()
