"""The runs of this machine beside the record and the paper: rows, and the screen they make."""

import json
import shutil

import pandas as pd
import pytest
import yaml

from roformer.report.paper import read_paper
from roformer.report.reproduction import COMPARISONS, EXPECTED, read_reproduction, screen
from roformer.report.runs import YOURS, RecordError, Runs, read_runs
from tests.conftest import REPOSITORY

EXPERIMENTS = REPOSITORY / "experiments"
PAPER = read_paper(EXPERIMENTS / "paper.yaml")
SPREADS = yaml.safe_load((EXPERIMENTS / EXPECTED).read_text())


def frame(rows):
    return Runs(pd.DataFrame(rows, columns=COLUMNS, dtype=object), pd.DataFrame())


COLUMNS = [
    "run",
    "study",
    "status",
    "pipeline",
    "task",
    "recipe",
    "tokens",
    "written",
    "config",
    "summary",
]


def made_up(study, *, loss, model, name="run-s0", status="done", written=0.0, **config):
    """Return a pre-training run."""
    position = "rotary" if model == "roformer" else "learned"
    whole = {"recipe": "mini", "model.name": model, "model.position.kind": position, "seed": 0}
    return {
        "run": name,
        "study": study,
        "status": status,
        "pipeline": "pretrain",
        "task": "",
        "recipe": "mini",
        "tokens": 4_900_000,
        "written": written,
        "summary": {"metrics": {"valid/mlm_loss": loss}}
        if status in ("done", "degenerate")
        else {},
        "config": whole | {key.replace("__", "."): value for key, value in config.items()},
    }


def reproduction(expected, runs, folder):
    """Return the rows of runs with these spreads."""
    shutil.copy(EXPERIMENTS / "paper.yaml", folder)
    (folder / EXPECTED).parent.mkdir(exist_ok=True)
    (folder / EXPECTED).write_text(json.dumps(expected))
    return read_reproduction(folder, runs if isinstance(runs, Runs) else frame(runs))


def pair(study, rotary, learned, **more):
    return [
        made_up(study, loss=rotary, model="roformer", **more),
        made_up(study, loss=learned, model="bert", **more),
    ]


@pytest.fixture
def first(tmp_path):
    """Return a function from runs to the row of Fig. 3 left with spreads of 0.1 and 0.2."""
    expected = {
        "figure_3_left": {
            "record": "reproduce",
            "spread": {"masked-LM loss": [0.1, 0.2]},
            "how": "made up",
        }
    }
    return lambda *runs: reproduction(expected, runs, tmp_path)[0]


RECORD = pair("reproduce", 3.0, 4.0)


@pytest.mark.parametrize(
    ("rotary", "learned", "holds", "verdict"),
    [
        (3.05, 3.85, "yes", "within 0.100 / 0.200"),
        (3.15, 4.0, "yes", "off by +0.150 / 0.000"),
        (3.0, 3.75, "yes", "off by 0.000 / -0.250"),
        (3.9, 4.0, "unclear", "off by +0.900 / 0.000"),
        (4.5, 4.0, "no", "off by +1.500 / 0.000"),
        (None, 4.0, "–", "no number"),
    ],
)
def test_the_verdict_is_of_the_record_and_of_the_claims_direction(
    first, rotary, learned, holds, verdict
):
    """Unclear is a lead within the larger spread, which another run may turn round."""
    row = first(*RECORD, *pair(YOURS, rotary, learned))
    assert (row.record, row.holds, row.verdict) == ("3.000 / 4.000", holds, verdict)
    assert row.here == f"{'NaN' if rotary is None else f'{rotary:.3f}'} / {learned:.3f}"


def test_runs_of_this_machine_are_never_taken_for_the_record(first):
    alone = first(*RECORD)
    assert (alone.here, alone.verdict, alone.is_run) == ("–", "not run", False)
    without = first(*pair(YOURS, 3.0, 4.0))
    assert (without.record, without.verdict, without.holds) == ("–", "nothing recorded", "yes")


@pytest.mark.parametrize("status", ["running", "failed", "damaged"])
def test_a_run_without_a_result_says_why(first, status):
    bert = made_up(YOURS, loss=4.0, model="bert", status=status)
    row = first(*RECORD, made_up(YOURS, loss=3.0, model="roformer"), bert)
    assert row.here == f"3.000 / {status}" and row.holds == "–"
    assert row.verdict == f"BERT: {status}" and row.is_run


def test_a_degenerate_run_is_no_repetition_of_the_record(first):
    bert = made_up(YOURS, loss=4.0, model="bert", status="degenerate")
    row = first(*RECORD, made_up(YOURS, loss=3.0, model="roformer"), bert)
    assert row.verdict == "BERT: degenerate"


def test_other_settings_are_named_instead_of_compared(first):
    other = first(*RECORD, *pair(YOURS, 3.0, 4.0, recipe="smoke", training__steps="5"))
    assert other.verdict == "other recipe and 1 more" and other.holds == "yes"
    free = first(*RECORD, *pair(YOURS, 3.0, 4.0, seed=7, runtime__threads=2))
    assert free.verdict.startswith("within")


def test_two_models_of_other_budgets_do_not_decide_a_claim(first):
    row = first(
        *RECORD,
        RECORD[0] | {"study": YOURS},
        made_up(YOURS, loss=4.0, model="bert", training__steps="5"),
    )
    assert row.holds == "–" and row.verdict == "other training.steps"


def test_the_recorded_configuration_counts_else_the_last_written(first):
    wild = pair(YOURS, 9.0, 9.0, optimizer__learning_rate="1000.0", written=2.0)
    assert first(*RECORD, *wild, *pair(YOURS, 3.0, 4.0, written=1.0)).here == "3.000 / 4.000"
    old = pair(YOURS, 5.0, 6.0, recipe="smoke", written=1.0)
    assert first(*RECORD, *old, *wild).here == "9.000 / 9.000"


def test_seeds_are_a_mean(first):
    seeds = [*pair(YOURS, 3.0, 4.0), *pair(YOURS, 3.1, 4.2, seed=1)]
    assert first(*RECORD, *seeds).here == "3.050 / 4.100"


def test_of_the_learning_rates_of_a_fine_tuning_the_best_counts(tmp_path):
    def tuned(rate, value):
        base = made_up(YOURS, loss=0.0, model="roformer", optimizer__learning_rate=str(rate))
        return base | {
            "pipeline": "glue",
            "task": "mrpc",
            "summary": {"metrics": {"mrpc/f1": value}},
        }

    rows = reproduction({}, [tuned(1, 0.7), tuned(2, 0.9), tuned(3, None)], tmp_path)
    (row,) = [row for row in rows if row.metric == "MRPC F1"]
    assert row.here == "90.0 / –" and row.verdict == "BERT: not run"


def test_a_paper_that_has_the_model_behind_claims_nothing(tmp_path):
    def tuned(model, value):
        base = made_up(YOURS, loss=0.0, model=model)
        measured = {"sst2/accuracy": value, "mrpc/f1": value}
        return [
            base | {"pipeline": "glue", "task": task, "summary": {"metrics": measured}}
            for task in ("sst2", "mrpc")
        ]

    rows = reproduction({}, [*tuned("roformer", 0.9), *tuned("bert", 0.8)], tmp_path)
    holds = {row.metric: row.holds for row in rows}
    assert (holds["SST-2 accuracy"], holds["MRPC F1"]) == ("(yes)", "yes")


def test_every_comparison_is_of_the_papers_data_and_has_a_spread():
    """So a metric that is added has both, and a spread of no comparison is a mistake."""
    rows = read_reproduction(EXPERIMENTS, frame([]))
    assert {row.experiment for row in rows} == set(PAPER["claims"]) - {"figure_2"}
    assert all(row.spread and row.how for row in rows)
    labels = {(one.experiment, one.label or one.metric) for one in COMPARISONS}
    assert {(key, name) for key, one in SPREADS.items() for name in one["spread"]} == labels
    numbers = [row.paper for row in rows if row.paper not in ("curves", "–")]
    assert len(numbers) == 11


def test_the_records_of_make_reproduce_fill_their_rows():
    recorded = read_runs([EXPERIMENTS / "reproduce"])
    both = pd.concat([recorded.runs, recorded.runs.assign(study=YOURS)])
    rows = read_reproduction(EXPERIMENTS, recorded._replace(runs=both))
    rows = [row for row in rows if row.is_run]
    assert {row.experiment for row in rows} == {"figure_3_left", "table_2", "table_1"}
    assert len(rows) == 9 and all(row.verdict.startswith("within") for row in rows)
    assert all(row.record == row.here and "/" in row.here for row in rows)
    (mrpc,) = [row for row in rows if row.metric == "MRPC F1"]
    assert "after 4.9 M" in mrpc.here_scale  # of pre-training
    text = screen(rows).splitlines()
    assert len(text) <= 22 and max(map(len, text)) <= 100


def test_the_screen_is_no_wider_than_asked_and_names_what_was_not_run():
    runs = [*RECORD, *pair(YOURS, 3.0, 4.0)]
    text = screen(read_reproduction(EXPERIMENTS, frame(runs)), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "not run: Table 2, Table 1" in text and "  MRPC" not in text


def test_a_damaged_file_of_spreads_is_one_line(tmp_path):
    wrong = {"table_1": {"record": "reproduce", "spread": {"BLEU": [1.0]}, "how": "x"}}
    with pytest.raises(
        RecordError, match=r"expected.yaml is not the spreads of the record: .*BLEU"
    ):
        reproduction(wrong, [], tmp_path)
