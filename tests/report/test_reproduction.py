"""The runs of this machine next to the record and the paper: rows, and the screen they make."""

import json
import runpy
import shutil

import pandas as pd
import pytest

from roformer.report.pages import script_of
from roformer.report.runs import COLUMNS, YOURS, Runs, read_runs, read_yaml_file
from tests.conftest import REPOSITORY
from tests.recorded_runs import EXPERIMENTS
from tests.report.records import write_run

SCRIPT = script_of("appendix/reproduce")
read_reproduction, screen = SCRIPT["read_reproduction"], SCRIPT["screen"]


def run(study, *, loss, model, status="done", written=0.0, **config):
    """Return a row of a pre-training run."""
    position = "rotary" if model == "roformer" else "learned"
    whole = {"recipe": "mini", "model.name": model, "model.position.kind": position, "seed": 0}
    ended = status in ("done", "degenerate")
    row = {"study": study, "status": status, "written": written, "pipeline": "pretrain"}
    row |= dict.fromkeys(("label", "configuration", "folder"), model)
    row["config"] = whole | {key.replace("__", "."): value for key, value in config.items()}
    row["summary"] = {"metrics": {"valid/mlm_loss": loss}} if ended else {}
    return COLUMNS | row | {"run": "run-s0", "seed": 0, "recipe": "mini", "tokens": 4_900_000}


def pair(study, rotary, learned, **more):
    return [
        run(study, loss=rotary, model="roformer", **more),
        run(study, loss=learned, model="bert", **more),
    ]


def rows(*runs):
    """Return the rows of these runs by metric, with the record's spreads: 0.081 of either loss."""
    frame = pd.DataFrame(runs, columns=[*COLUMNS], dtype=object)
    return {one.metric: one for one in read_reproduction(EXPERIMENTS, Runs(frame, frame))}


def first(*runs):
    return rows(*runs)["masked-LM loss"]


def screened(*runs):
    """Return the lines of the screen."""
    frame = pd.DataFrame(runs, columns=[*COLUMNS], dtype=object)
    return screen(read_reproduction(EXPERIMENTS, Runs(frame, frame)), frame).splitlines()


def tuned(model, value, *, rate=1, tasks=("mrpc", "sst2", "mnli")):
    base = run(YOURS, loss=0.0, model=model, optimizer__learning_rate=str(rate))
    other = None if value is None else 1 - value
    metrics = {"mrpc": {"mrpc/f1": value}, "sst2": {"sst2/accuracy": value}}
    metrics["mnli"] = {"mnli/accuracy_matched": value, "mnli/accuracy_mismatched": other}
    return [
        base
        | {
            "pipeline": "glue",
            "task": task,
            "folder": f"{model}-{task}-{rate}",
            "headline": next(iter(metrics[task])),
            "summary": {"metrics": metrics[task], "learning_rate": rate},
        }
        for task in tasks
    ]


RECORD = pair("reproduce", 3.0, 4.0)


@pytest.mark.parametrize(
    ("rotary", "learned", "holds", "verdict"),
    [
        (3.05, 3.95, "yes", "within 0.081 / 0.081"),
        (3.15, 4.0, "yes", "off by +0.150 / 0.000"),
        (3.0, 3.75, "yes", "off by 0.000 / -0.250"),
        (3.95, 4.0, "unclear", "off by +0.950 / 0.000"),
        (4.5, 4.0, "no", "off by +1.500 / 0.000"),
        (None, 4.0, "–", "no number"),
    ],
)
def test_the_verdict_is_of_the_record_and_of_the_claims_direction(rotary, learned, holds, verdict):
    """Unclear is a lead within the larger spread, which another run may turn round."""
    row = first(*RECORD, *pair(YOURS, rotary, learned))
    assert (row.record, row.holds, row.verdict) == ("3.000 / 4.000", holds, verdict)
    assert row.here == f"{'NaN' if rotary is None else f'{rotary:.3f}'} / {learned:.3f}"


def test_runs_without_a_result_say_why():
    """Of this machine, or of the record."""
    here = run(YOURS, loss=3.0, model="roformer")
    row = first(*RECORD, here, run(YOURS, loss=4.0, model="bert", status="failed"))
    found = (row.here, row.holds, row.verdict, row.is_run)
    assert found == ("3.000 / failed", "–", "BERT: failed", True)
    row = first(*RECORD, here, run(YOURS, loss=4.0, model="bert", status="degenerate"))
    assert row.verdict == "BERT: degenerate"
    row = first(*RECORD)
    assert (row.here, row.verdict, row.is_run) == ("–", "not run", False)
    row = first(*pair(YOURS, 3.0, 4.0))
    assert (row.record, row.verdict, row.holds) == ("–", "nothing recorded", "yes")


def test_the_recorded_configuration_is_compared_else_the_last_written():
    """Another configuration is named; seeds and threads are none."""
    wild = pair(YOURS, 9.0, 9.0, optimizer__learning_rate="1000.0", written=2.0)
    like = pair(YOURS, 3.0, 4.0, written=1.0, seed=7, runtime__threads=2)
    row = first(*RECORD, *wild, *like)
    assert row.here == "3.000 / 4.000" and row.verdict.startswith("within")
    old = pair(YOURS, 5.0, 4.0, recipe="smoke", training__steps="5", written=3.0)
    row = first(*RECORD, *wild, *old)
    assert (row.here, row.verdict) == ("5.000 / 4.000", "other recipe and 1 more")


def test_models_that_differ_in_more_than_positions_are_no_pair():
    """The recorded configuration is shown without a partner."""
    other = {"data__tokenizer__vocab_size": "512"}
    bert = run(YOURS, loss=4.0, model="bert", written=1.0, **other)
    runs = [run(YOURS, loss=3.0, model="roformer"), bert]
    row = first(*RECORD, *runs)
    assert (row.here, row.holds, row.verdict) == ("3.000 / –", "–", "BERT: not run")
    assert screened(*RECORD, *runs)[-1] == "not in this table: 1 of other models or settings"
    later = pair(YOURS, 3.2, 4.2, **other)  # a whole pair is chosen before a half one
    assert first(*RECORD, *runs, *later).here.startswith("3.200 / ")


def test_a_smoke_test_and_a_diverged_run_are_no_partners():
    """Each was once paired with a model of another study."""
    trial = run(YOURS, loss=96684.62, model="roformer", written=9.0, training__steps="40")
    failed = run(YOURS, loss=0.0, model="roformer", status="failed", written=8.0, rate="100")
    trial |= {"steps": 40, "folder": "t"}
    both = pair(YOURS, 3.0, 4.0)
    runs = [trial, failed | {"folder": "f"}, *both]
    assert first(*RECORD, *runs).here == "3.000 / 4.000"
    assert screened(*RECORD, *runs)[-1] == "not in this table: 1 shorter than 100 steps, 1 failed"
    assert first(*RECORD, trial, both[1]).here == "– / 4.000"


def test_fine_tunings_are_a_pair_only_if_their_pretrainings_are():
    def tuned_from(model, **more):
        own = run(YOURS, loss=3.0, model=model, **more)
        own |= {"run": f"{model}{len(more)}-s0", "folder": model}
        (cell,) = tuned(model, 0.8, tasks=("mrpc",))
        return [own, cell | {"config": cell["config"] | {"init_from": own["run"]}}]

    bert = tuned_from("bert")
    like = rows(*tuned_from("roformer"), *bert)["MRPC F1"]
    assert like.here == "80.0 / 80.0"
    longer = rows(*tuned_from("roformer", training__steps="9999"), *bert)["MRPC F1"]
    assert "–" in longer.here


def test_seeds_are_a_mean_at_the_best_rate_by_the_headline():
    """No matched part of one rate with the mismatched part of another."""
    seeds = [*pair(YOURS, 3.0, 4.0), *pair(YOURS, 3.1, 4.2, seed=1)]
    assert first(*RECORD, *seeds).here == "3.050 / 4.100"
    several = [tuned("roformer", value, rate=rate) for rate, value in enumerate((0.7, 0.9, None))]
    found = rows(*(one for each in several for one in each))
    assert found["MRPC F1"].here == "90.0 / –"
    assert found["MNLI-m accuracy"].here == "90.0 / –"
    assert found["MNLI-mm accuracy"].here == "10.0 / –"


def test_every_comparison_is_of_the_papers_data():
    """In brackets where the paper itself has the model behind, and so claims nothing."""
    paper = read_yaml_file(EXPERIMENTS / "paper.yaml", what="the paper's numbers")
    found = read_reproduction(EXPERIMENTS, Runs(pd.DataFrame(columns=COLUMNS), pd.DataFrame()))
    assert {row.experiment for row in found} == set(paper["claims"]) - {"figure_2", "table_4"}
    assert all(row.spread and row.verdict == "not run" for row in found)
    numbers = [row.paper for row in found if row.paper not in ("curves", "–")]
    assert len(numbers) == 11 and "89.5 / 88.9*" in numbers and "69.79 / 68.29" in numbers
    tunings = rows(*tuned("roformer", 0.95), *tuned("bert", 0.55))
    assert (tunings["SST-2 accuracy"].holds, tunings["MRPC F1"].holds) == ("(yes)", "yes")
    for one in SCRIPT["read_comparisons"](EXPERIMENTS):
        assert one.metric in paper["experiments"][one.experiment]["metrics"]


def test_the_records_of_make_reproduce_fill_their_rows_and_one_screen():
    recorded = read_runs([EXPERIMENTS / "appendix" / "reproduce"])
    both = pd.concat([recorded.runs, recorded.runs.assign(study=YOURS)])
    every = read_reproduction(EXPERIMENTS, recorded._replace(runs=both))
    found = [row for row in every if row.is_run]
    assert {row.experiment for row in found} == {"figure_3_left", "table_2", "table_1"}
    assert len(found) == 9 and all(row.verdict.startswith("within") for row in found)
    assert all(row.record == row.here and "/" in row.here for row in found)
    (mrpc,) = [row for row in found if row.metric == "MRPC F1"]
    assert mrpc.scales["here"] == "0.2 M tokens after 1.2 M, 4 × 256, builtin"
    text = screen(every, both).splitlines()
    assert len(text) <= 22 and max(map(len, text)) <= 100
    assert text[-2] == "not run: Fig. 3 right, Causal language model, Table 5"
    narrow = screen(every[:1], recorded.runs, 80).splitlines()
    assert max(map(len, narrow)) <= 80 and len(narrow) == 4


def test_the_dashboard_of_any_folders_has_the_rows_unless_they_cannot_be_read(tmp_path):
    experiments, reproduce = tmp_path / "experiments", "appendix/reproduce"
    shutil.copytree(EXPERIMENTS / reproduce, experiments / reproduce)
    shutil.copy(EXPERIMENTS / "paper.yaml", experiments)
    write_run(tmp_path / "runs/pretrain/a-s0", losses={900: 4.5})
    page = runpy.run_path(str(REPOSITORY / "scripts" / "dashboard.py"))["Content"]
    content = page([experiments, tmp_path / "runs"])
    assert "masked-LM loss" in json.loads(content.read())["parts"]["results"]
    (experiments / "paper.yaml").write_text("[")
    assert json.loads(content.read())["parts"]["results"] == ""
