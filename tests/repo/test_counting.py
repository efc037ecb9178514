"""The scripts that count, beside the studies whose reports say what counting is worth."""

import json
import runpy
import sys

import numpy as np

from tests.conftest import REPOSITORY


def printed(script, argument, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [script, str(argument)])
    runpy.run_path(str(REPOSITORY / "experiments" / script), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_documents_that_are_known_answer_triplets(tmp_path, capsys, monkeypatch):
    """Known documents are right, wrong, and of no help; pairs help the third, A the second."""
    train = [{"A": "aa", "B": "bbx", "C": "ccx"}, {"A": "aa", "B": "bby", "C": "ccy"}]
    held_out = [
        {"A": "bbq", "B": "bbx", "C": "ccx"},
        {"A": "ccq", "B": "ccy", "C": "bby"},
        {"A": "zz", "B": "bbz", "C": "wx"},
    ]
    for name, rows in (("train", train), ("validation", held_out)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert printed("scm_real/counting.py", tmp_path, capsys, monkeypatch) == [
        "documents: 50.0% of 3",
        "character pairs of B and C: 66.7% of 3",
        "character pairs shared with A: 83.3% of 3",
    ]


def test_pairs_and_triples_of_bytes_are_worth_what_they_are(tmp_path, capsys, monkeypatch):
    """Two letters at random, each written three times: triples know two of three letters."""
    monkeypatch.chdir(tmp_path)
    letters = np.random.default_rng(0).choice(list("ab"), 700_000)
    (tmp_path / "text.txt").write_text("".join(letter * 3 for letter in letters))
    lines = printed("performer_bytes/counting.py", tmp_path / "text.txt", capsys, monkeypatch)
    assert [line.split(":")[0] for line in lines] == ["single bytes", "pairs", "triples"]
    bits = [float(line.split()[-4]) for line in lines]
    # Of the two before: alike in 5 of 6 places, where the next is so in 4 of 5; else certainly.
    entropy = -(5 / 6) * (0.8 * np.log2(0.8) + 0.2 * np.log2(0.2))
    np.testing.assert_allclose(bits, [1.0, 0.65, entropy], atol=0.005)
