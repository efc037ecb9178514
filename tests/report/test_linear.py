"""The table and the figure of linear attention, and where they say that it is faster."""

import json

import pytest

from roformer.report.figures import draw_linear
from roformer.report.results import crossovers, linear_table, read_linear
from roformer.report.runs import RecordError

PEER = {"what": "against another code", "ratio": 8.0, "goal": 6.0} | {
    "peer_seconds": 0.8,
    "ours_seconds": 0.1,
}


def measured(method, causal, length, ratio):
    seconds = {"peer_seconds": 0.1 * ratio, "ours_seconds": 0.1}
    memory = {"peer_bytes": 5e6, "ours_bytes": 7e6 * length}
    place = {"method": method, "causal": causal, "length": length}
    return {"what": method, "ratio": ratio, "goal": None, **seconds, **memory, **place}


def record(folder, rows):
    file = folder / "linear.json"
    file.write_text(json.dumps({"rows": rows}))
    return file


ROWS = [
    *(measured("elu+1", False, n, r) for n, r in ((512, 2.0), (1024, 4.0))),
    *(measured("FAVOR+", False, n, r) for n, r in ((512, 1.2), (1024, 0.9), (2048, 1.5))),
    *(measured("FAVOR+", True, n, r) for n, r in ((512, 0.2), (1024, 1.0))),
]


def test_faster_means_faster_at_all_lengths_from_there():
    """1.2 at 512 does not count where 0.9 follows, nor does 1.0."""
    found = crossovers(list(reversed(ROWS)))
    assert found == {(False, "FAVOR+"): 2048, (False, "elu+1"): 512, (True, "FAVOR+"): None}


def test_tables_and_caption_say_what_was_measured(tmp_path):
    file = record(tmp_path, [*ROWS, PEER])
    text = linear_table(file)
    assert "| bidirectional | elu+1 | 1,024 | 4.00 | 100 | 400 | 7,168 | 5 |" in text
    assert "| causal | FAVOR+ | – |" in text
    assert "| against another code | 8.00 | 6 | 100 | 800 |" in text
    caption = draw_linear(file, tmp_path / "plots" / "linear.png")
    assert "FAVOR+ bidirectional from 2,048 tokens" in caption
    assert "FAVOR+ causal nowhere here" in caption
    before = (tmp_path / "plots" / "linear.png").read_bytes()
    assert draw_linear(file, tmp_path / "plots" / "linear.png") == caption
    assert (tmp_path / "plots" / "linear.png").read_bytes() == before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([PEER], "no row of a method"),
        ([measured("a", False, 512, -1.0)], "row 1, ratio: not a positive"),
        ([{k: v for k, v in ROWS[0].items() if k != "causal"}], "a row without causal"),
    ],
)
def test_a_damaged_record_is_told_in_a_line(tmp_path, rows, message):
    with pytest.raises(RecordError, match=message) as refusal:
        read_linear(record(tmp_path, rows))
    assert "\n" not in str(refusal.value)
