"""Tables of translation runs: what stands beside what, and what never does."""

import json
import statistics
import subprocess
import sys

import pytest

from roformer.report.wmt import wmt_tables
from tests.conftest import REPOSITORY

SIGNATURES = {
    "sacrebleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
    "chrf": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
    "bleu_compound": "nrefs:1|case:mixed|eff:no|tok:moses-de+atat|smooth:exp|version:2.6.0",
}
REFERENCES = [f"Der Satz {i} steht hier vor dem Wort {i % 7} ." for i in range(60)]


def record(
    folder,
    name,
    seed,
    bleu,
    *,
    position="rotary",
    status="done",
    alpha=0.6,
    threads=1,
    lines=3003,
    signatures=None,
    translations=REFERENCES,
    references=REFERENCES,
):
    values = {"sacrebleu": bleu, "chrf": bleu + 30, "bleu_compound": bleu + 1}
    single = {f"test/{metric}_single": value - 0.5 for metric, value in values.items()}
    averaged = {f"test/{metric}": value for metric, value in values.items()}
    scored = {
        "metrics": {"valid/loss": 2.0, **averaged, **single},
        "signatures": SIGNATURES | (signatures or {}),
        "test_set": {"name": "newstest2014", "lines": lines, "fingerprint": f"{lines:064x}"},
    }
    summary = {
        "pipeline": "wmt",
        "model": "transformer",
        "position": position,
        "recipe": "wmt_mini",
        "seed": seed,
        "status": status,
        "metrics": {},
        **(scored if status != "failed" else {}),
    }
    config = {
        "seed": seed,
        "model": {"position": {"kind": position}},
        "search": {"alpha": alpha},
        "runtime": {"threads": threads},
    }
    path = folder / name
    (path / "translations").mkdir(parents=True)
    (path / "config.yaml").write_text(json.dumps(config))
    (path / "summary.json").write_text(json.dumps(summary))
    for kind, text in (("averaged", translations), ("reference", references)):
        (path / "translations" / f"test.{kind}.txt").write_text("".join(f"{t}\n" for t in text))
    return path


def script(name, *arguments):
    return subprocess.run(
        [sys.executable, f"scripts/{name}.py", *map(str, arguments)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )


def test_one_row_an_arm_with_mean_and_spread(tmp_path):
    bleus = (27.1, 27.5, 27.9)
    folders = [record(tmp_path, f"r{s}", s, b, threads=s + 1) for s, b in enumerate(bleus)]
    folders += [record(tmp_path, "sin", 0, 26.0, position="sinusoidal")]
    lines = wmt_tables(folders).splitlines()
    assert lines[0] == "**newstest2014**, 3,003 lines (fingerprint 000000000000)"
    assert lines[2] == ("| model | sacreBLEU | sacreBLEU, last checkpoint | chrF | compound BLEU |")
    spread = f"{statistics.stdev(bleus):.2f} (3)"
    assert lines[4] == (
        f"| transformer (rotary) | 27.50 ± {spread} | 27.00 ± {spread} | 57.50 ± {spread} "
        f"| 28.50 ± {spread} |"
    )
    assert lines[5].startswith("| transformer (sinusoidal) | 26.00 (1) | 25.50 (1) |")
    assert f"- compound BLEU: `{SIGNATURES['bleu_compound']}`" in lines


def test_other_settings_are_another_arm_named_by_what_differs(tmp_path):
    folders = [record(tmp_path, "a", 0, 27.0), record(tmp_path, "b", 1, 28.0, alpha=1.0)]
    text = wmt_tables(folders)
    assert "| transformer (rotary), search.alpha=0.6 | 27.00 (1) |" in text
    assert "| transformer (rotary), search.alpha=1.0 | 28.00 (1) |" in text


@pytest.mark.parametrize(
    "other", [{"lines": 2737}, {"signatures": {"chrf": "nrefs:1|nc:6|nw:2|version:2.6.0"}}]
)
def test_other_test_sets_and_signatures_are_another_table(tmp_path, other):
    """Even where one signature of the three differs; each table has its own test set and lines."""
    folders = [record(tmp_path, "a", 0, 27.0), record(tmp_path, "b", 1, 37.0, **other)]
    text = wmt_tables(folders)
    assert text.count("| model |") == text.count("**newstest2014**") == 2
    first, second = text.split("**newstest2014**")[1:]
    assert "| 27.00 (1) |" in first and "3,003 lines" in first
    assert "| 37.00 (1) |" in second and "37.00" not in first and "±" not in text
    assert ("2,737 lines" in second) == ("lines" in other)
    assert ("nw:2" in second) == ("signatures" in other) and "nw:2" not in first


def test_failed_and_degenerate_runs_are_told(tmp_path):
    folders = [
        record(tmp_path, "good", 0, 27.0),
        record(tmp_path, "flat", 1, 1.0, status="degenerate"),
        record(tmp_path, "broken", 2, 0.0, status="failed"),
        record(tmp_path, "broken.before-1", 2, 0.0, status="failed"),
    ]
    text = wmt_tables(folders)
    assert "| transformer (rotary) | 14.00 ± 18.38 (2) |" in text
    assert "Counted, though degenerate: `flat` (transformer (rotary))." in text
    assert "Left out, without scores: `broken` (transformer (rotary)) is failed." in text


def test_a_score_that_is_missing_is_not_averaged_away(tmp_path):
    folders = [record(tmp_path, "a", 0, 27.0), record(tmp_path, "b", 1, 28.0)]
    summary = json.loads((folders[0] / "summary.json").read_text())
    summary["metrics"]["test/chrf"] = None
    (folders[0] / "summary.json").write_text(json.dumps(summary))
    assert "| NaN (2) |" in wmt_tables(folders)


def test_a_seed_counts_once(tmp_path):
    folders = [record(tmp_path, "a", 0, 27.0), record(tmp_path, "a.before-1", 0, 20.0)]
    with pytest.raises(ValueError, match="have the same settings and seed"):
        wmt_tables(folders)


def test_other_runs_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no summary.json"):
        wmt_tables([tmp_path])
    (tmp_path / "summary.json").write_text('{"pipeline": "glue"}')
    (tmp_path / "config.yaml").write_text("{}")
    with pytest.raises(ValueError, match="is a run of glue, not of wmt"):
        wmt_tables([tmp_path])
    with pytest.raises(ValueError, match="none of these runs is finished"):
        wmt_tables([])


def test_the_table_is_printed_and_the_unfinished_are_told(tmp_path):
    (tmp_path / "half").mkdir()
    done = script("wmt_table", record(tmp_path, "a", 0, 27.0), tmp_path / "half")
    assert done.returncode == 0 and "| 27.00 (1) |" in done.stdout
    assert f"left out: {tmp_path / 'half'} has no summary.json" in done.stderr
