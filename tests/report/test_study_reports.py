"""Tables of report.py in the folders of studies: speed, linear attention, decay, length extension."""

import json

import pandas as pd
import pytest

from roformer.report.pages import script_of
from tests.recorded_runs import EXPERIMENTS

decay, extension, speed = map(script_of, ("decay", "length_extension", "speed"))
DECAY = EXPERIMENTS / "decay" / "decay.json"
LINEAR = EXPERIMENTS / "speed" / "linear.json"
EXTENSION = next((EXPERIMENTS / "length_extension").glob("bert*.json"))
RATIOS = {
    ("bidirectional", "elu+1"): {1024: 4.0, 512: 2.0},
    ("bidirectional", "FAVOR+"): {2048: 1.5, 1024: 0.9, 512: 1.2},
    ("causal", "FAVOR+"): {512: 0.2, 1024: 1.0},
}


def test_faster_means_faster_at_all_lengths_from_there():
    """1.2 at 512 does not count where 0.9 follows, nor does 1.0."""
    rows = [(*key, n, ratio) for key, found in RATIOS.items() for n, ratio in found.items()]
    found = speed["crossovers"](pd.DataFrame(rows, columns=["form", "method", "length", "ratio"]))
    assert list(found.values()) == [2048, 512, None] and found["causal", "FAVOR+"] is None


def test_linear_tables_have_times_memory_and_other_software():
    by_length, faster, others = speed["linear_tables"](LINEAR)
    row = next(row for row in json.loads(LINEAR.read_text())["rows"] if row.get("causal"))
    shown = [f"{1e3 * row[key]:,.0f}" for key in ("ours_seconds", "peer_seconds")]
    shown += [f"{row[key] / 1e6:,.0f}" for key in ("ours_bytes", "peer_bytes")]
    start = ["causal", row["method"], f"{row['length']:,}", f"{row['ratio']:.2f}"]
    assert [*start, *shown] in by_length.lines
    assert ["causal", "elu+1", "512 tokens"] in faster.lines
    assert others.lines[1][0].startswith("FAVOR+ against performer-pytorch")


def test_speed_has_every_suite_and_no_goal_is_empty():
    records = EXPERIMENTS / "speed" / "amd"
    (table,) = speed["speed_tables"](records)
    whats = [line[0] for line in table.lines]
    assert any(what.startswith("attention as two products") for what in whats)
    row = json.loads((records / "training.json").read_text())["rows"][0]
    line = next(line for line in table.lines if line[0] == row["what"])
    met = "yes" if row["ratio"] >= row["goal"] else "no"
    share, tokens = f"{row['share_of_limit']:.0%}", f"{row['ours_tokens_per_second']:,.0f}"
    assert line[1:] == [f"{row['ratio']:.2f}", f"{row['goal']:g}", met, share, tokens, "none"]
    assert any(line[2] == "" for line in table.lines)


def test_speed_shows_missed_goals_and_selects_rows_by_pattern(tmp_path):
    rows = [
        {"what": "step", "ratio": 3.0, "goal": 4.0, "deviations": "none", "share_of_limit": 0.71},
        {"what": "epoch", "ratio": 3.0, "goal": 2.0, "deviations": "none"},
        {"what": "peer alone", "ratio": 1.5, "goal": None, "deviations": "none"},
    ]
    (tmp_path / "like.json").write_text(json.dumps({"rows": rows}))
    (table,) = speed["speed_tables"](tmp_path)
    assert [line[:5] for line in table.lines[1:]] == [
        ["step", "3.00", "4", "no", "71%"],
        ["epoch", "3.00", "2", "yes", ""],
        ["peer alone", "1.50", "", "", ""],
    ]
    (table,) = speed["speed_tables"](tmp_path, ["epoc*", "st?p"])
    assert [line[0] for line in table.lines[1:]] == ["epoch", "step"]


def test_costs_of_encodings_are_multiples_of_the_rotary_ones(tmp_path):
    rows = []
    for encoding, step, token, size in (("rotary", 1.0, 1.0, 1e6), ("t5", 0.5, 0.25, 3e6)):
        about = {"encoding": encoding, "length": 512, "parameters": int(size)}
        rows += [{**about, "ratio": step, "ours_bytes": size}, {**about, "ratio": token}]
    (tmp_path / "encodings.json").write_text(json.dumps({"rows": rows}))
    (table,) = speed["encodings_tables"](tmp_path / "encodings.json")
    header = ["encoding", "parameters", "step of 512", "token after 512", "memory at 512"]
    assert table.lines[0] == header
    assert table.lines[2] == ["t5", "3,000,000", "2.00", "4.00", "3.00"]


def test_decay_is_a_mean_over_seeds_and_its_trend_one_of_each():
    record = decay["read_decay"](DECAY)
    bound, centred, weight, trends = decay["decay_tables"](DECAY)
    assert bound.lines[0] == ["head size", "0", "10", "50", "100", "150", "200", "250"]
    paper = next(line for line in bound.lines if line[0] == "128")
    assert paper[1:3] == ["32.50", "17.95"]
    own = record.curves.query("name == 'roformer (rotary)' and layer < 0 and pairs == 'both'")
    at_one = 100 * own[(own.quantity == "weight") & (own.distance == 1)].value
    cell = f"{at_one.mean():.2f} ± {at_one.std():.2f} (3)"
    assert next(line for line in weight.lines if line[0] == "roformer (rotary)")[2] == cell
    assert centred.lines[0][:2] == ["model", "0"] and len(trends.lines[0]) == 7
    curve = pd.DataFrame({"distance": range(4), "value": [0.0, -1.0, -2.0, -4.0]})
    assert decay["trend"](curve) == pytest.approx(-1) and pd.isna(
        decay["trend"](curve.assign(value=1.0))
    )


def test_an_extension_has_no_number_where_a_length_was_not_read():
    loss, verdicts, every, places = extension["extension_tables"](EXTENSION)
    content = json.loads(EXTENSION.read_text())
    assert loss.lines[0] == ["scaling", *map(str, content["lengths"])] and loss.lines[1][-1] == "–"
    assert verdicts.lines[1][1] == "keeps" and len(every.lines) == 1 + len(content["rows"])
    segments = [f"{value:.3f}" for value in content["rows"][-1]["segments"]]
    assert [f"none, {content['rows'][-1]['length']:,}", *segments] == places.lines[-1]
