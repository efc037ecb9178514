"""Fine-tuning from a command line to its tables, in this process."""

import json
import shutil

import numpy as np
import pytest

import roformer
from roformer.data.toy.glue import builtin_examples
from roformer.errors import InputError
from roformer.evaluation.glue_metrics import glue_metric
from roformer.inference.submission import missing, write_submission
from roformer.pipelines.glue import cells_of, glue
from roformer.tasks import baselines
from roformer.tasks.classification import ClassificationTask
from roformer.training.loop import Loop
from tests.conf.composed import built
from tests.data import glue_tasks
from tests.e2e.conftest import forget_processes, places

SMALL = [
    *("recipe=smoke", "tracker=none", "jobs=1", "task=mrpc"),
    *("data.train_examples=96", "data.max_train_examples=null", "data.validation_examples=40"),
    *("training.max_length=48", "training.epochs=2"),
    *("runtime.device=cpu", "runtime.tune_process=false"),
]


def run(arguments, *overrides):
    """Run a grid in this process; return the folders of its runs."""
    forget_processes()
    return glue(built("glue", [*arguments, *overrides]))


@pytest.fixture
def small(tmp_path):
    """Return the command line of a small grid into `tmp_path`."""
    return [*SMALL, *places(tmp_path)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a run of three tasks by the task, to be left as they are."""
    where = places(tmp_path_factory.mktemp("trained"))
    folders = run([*SMALL, *where], "task=[mrpc,stsb,mnli]", "keep_weights=all")
    return {summary_of(folder)["task"]: folder for folder in folders}


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def test_a_grid_is_the_product_and_finished_cells_are_kept(small, monkeypatch):
    """The baselines of a task are computed once, as every cell of a task has the same data."""
    computed, of_task = [], baselines.of_task
    monkeypatch.setattr(
        baselines, "of_task", lambda config: computed.append(config.task_name) or of_task(config)
    )
    rates = [1e-3, 2e-3]
    grid = [f"optimizer.learning_rate={rates}", "training.epochs=1"]
    (first,) = run(small, f"optimizer.learning_rate={rates[0]}", "training.epochs=1")
    written = (first / "summary.json").stat().st_mtime_ns
    folders = run(small, *grid)
    assert first in folders and computed == ["mrpc"]
    assert (first / "summary.json").stat().st_mtime_ns == written
    assert sorted(summary_of(folder)["learning_rate"] for folder in folders) == rates
    # Only the weights of the best cell are kept, without the optimizer's.
    (kept,) = (folder for folder in folders if (folder / "checkpoints").exists())
    assert not list(kept.glob("checkpoints/step_*/optimizer.safetensors"))
    monkeypatch.setattr(Loop, "run", lambda self: pytest.fail("a finished cell was trained again"))
    assert run(small, *grid) == folders


def test_a_record_says_what_came_out(trained):
    folder = trained["mnli"]
    summary = summary_of(folder)
    assert summary["pipeline"] == "glue" and summary["init_from"] == "scratch"
    assert summary["headline"] == "mnli/accuracy_matched"
    assert {"mnli/accuracy_matched", "mnli/accuracy_mismatched"} <= summary["metrics"].keys()
    for values in summary["baselines"].values():
        assert list(values.values()) == [pytest.approx(1 / 3)] * 2
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluated = [row for row in rows if "mnli/accuracy_matched" in row]
    assert [row["step"] for row in evaluated] == [6, 12]  # the end of each epoch, nowhere else
    best = max(evaluated, key=lambda row: row["mnli/accuracy_matched"])
    assert summary["best"]["step"] == best["step"]
    description = json.loads((folder / "checkpoints" / "best" / "model.json").read_text())
    assert description["labels"] == glue_tasks.TASKS["mnli"].labels
    assert description["task"] == "mnli" and description["max_length"] == 48


@pytest.mark.parametrize("task", ["mrpc", "stsb"])
def test_predictions_are_those_the_metrics_are_of(trained, task):
    """The files hold the best epoch; the metric computed from them is the recorded one."""
    lines = (trained[task] / "predictions" / "validation.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines[1:]]
    labels = glue_tasks.TASKS[task].labels
    value = float if labels is None else labels.index
    references, predictions = ([value(row[column]) for row in rows] for column in (1, 2))
    for name, expected in summary_of(trained[task])["best"]["metrics"].items():
        if name.startswith(f"{task}/") and not name.endswith("constant"):
            metric = glue_metric(name.partition("/")[2], predictions, references)
            assert metric == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("task", "answer", "metrics"),
    [
        ("mrpc", [0.0, 1.0], {"mrpc/f1": pytest.approx(2 / 3)}),  # looks well, is nothing
        ("stsb", [2.5], {"stsb/spearman": None}),
    ],
)
def test_a_model_that_answers_always_the_same_is_degenerate(
    small, monkeypatch, task, answer, metrics
):
    def same(self, model, part, accelerator=None):
        return np.tile(np.array(answer, np.float32), (len(part.split), 1))

    monkeypatch.setattr(ClassificationTask, "held_out_outputs", same)
    (folder,) = run(small, f"task={task}", "training.epochs=1")
    summary = summary_of(folder)
    assert summary["status"] == "degenerate"
    assert metrics.items() <= summary["metrics"].items()
    assert task == "mrpc" or summary["best"]["metrics"] == {}


# --- where it starts -----------------------------------------------------------------------------


def test_it_starts_from_a_pretraining_run_by_folder_or_id(small, pretrained, tmp_path, capsys):
    here, local = [*small, "training.epochs=1"], tmp_path / "runs" / "pretrain" / pretrained.name
    shutil.copytree(pretrained, local, symlinks=True)
    folders = run(here, f"init_from={local}")
    printed = capsys.readouterr().out
    assert "drawn: pooler.weight, pooler.bias, classifier.weight, classifier.bias" in printed
    unused = printed.partition("dropped: ")[2].splitlines()[0].split(", ")
    head = {"bias", "norm.bias", "norm.weight", "transform.bias", "transform.weight"}
    assert set(unused) == head
    assert summary_of(folders[0])["init_from"] == pretrained.name
    assert run(here, f"init_from={pretrained.name}") == folders
    config = (folders[0] / "config.yaml").read_text()
    assert f"init_from: {pretrained.name}" in config and "size: tiny" in config


def test_wrong_starts_are_one_line(small, pretrained, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(pretrained, other, symlinks=True)
    glue_tasks.TOKENIZER.save(tmp_path / "words")

    def told(*overrides):
        with pytest.raises(InputError) as refusal:
            run(small, *overrides)
        assert "\n" not in str(refusal.value)
        return str(refusal.value)

    source = f"tokenizer.source={tmp_path / 'words'}"
    assert "is not the tokenizer that" in told(f"init_from={pretrained}", source)
    shutil.rmtree(other / "tokenizer")
    assert "has no tokenizer/" in told(f"init_from={other}")
    shutil.copytree(tmp_path / "words", other / "tokenizer")
    assert "is not the tokenizer that the model was trained with" in told(f"init_from={other}")


# --- using the results ---------------------------------------------------------------------------


def test_a_loaded_model_predicts_what_the_run_predicted(trained):
    model = roformer.load_model(trained["mrpc"])
    assert model.labels == ["not_equivalent", "equivalent"] and model.task == "mrpc"
    examples = builtin_examples("mrpc", "validation", 40)
    predictions = list(model.predict([(example.text_a, example.text_b) for example in examples]))
    lines = (trained["mrpc"] / "predictions" / "validation.tsv").read_text().splitlines()[1:]
    assert [p.label for p in predictions] == [line.split("\t")[2] for line in lines]
    logits = np.array([line.split("\t")[3:] for line in lines], dtype=float)
    expected = np.exp(logits).max(1) / np.exp(logits).sum(1)
    assert [p.score for p in predictions] == pytest.approx(expected, abs=1e-3)


def test_texts_that_are_too_long_are_cut_counted_and_told(small, capsys):
    (folder,) = run(small, "training.max_length=12", "training.epochs=1")
    assert "train examples are longer than 12 tokens and were cut" in capsys.readouterr().out
    (prediction,) = roformer.load_model(folder).predict([("a " * 20, "b " * 20)])
    assert prediction.cut
    learned = ["model=bert", "model.position.max_positions=16"]
    (config,) = cells_of(built("glue", [*small, *learned]))
    task = ClassificationTask(config)
    task.build_model()
    assert "longer than 16 tokens and were cut" in task.introduction()[-1]


def test_a_submission_has_the_servers_files(small, trained, tmp_path):
    """Labels by name or number, scores in range, every test row once; labels are never read."""
    with pytest.raises(InputError, match="mrpc has no test split"):
        write_submission([trained["mrpc"]], tmp_path / "out")
    header = glue_tasks.RTE
    rows = [
        (f"{i}", f"a{'b' * i}", "c", ("entailment", "not_entailment")[i % 2]) for i in range(20)
    ]
    body = header + "".join("\t".join(row) + "\n" for row in rows)
    test = "index\tsentence1\tsentence2\n" + "".join("\t".join(r[:3]) + "\n" for r in rows[:7])
    glue_tasks.write(tmp_path, "rte", train=body, dev=body, test=test)
    scored = glue_tasks.STSB + "".join(f"{i}\ta\tb{'c' * i}\t{i % 6}\n" for i in range(20))
    test = "index\tsentence1\tsentence2\n0\ta\tb\n1\tc\td\n"
    glue_tasks.write(tmp_path, "stsb", train=scored, dev=scored, test=test)
    files = ["data=files", f"data.path={tmp_path}", "training.epochs=1"]
    small = [a for a in small if not a.startswith(("data.train", "data.valid"))]
    folders = run(small, "task=[rte,stsb]", *files)
    written = write_submission(folders, tmp_path / "out")
    assert {file.name for file in written} == {"RTE.tsv", "STS-B.tsv"}
    lines = (tmp_path / "out" / "RTE.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 8
    assert all(line.split("\t")[1] in ("entailment", "not_entailment") for line in lines[1:])
    lines = (tmp_path / "out" / "STS-B.tsv").read_text().splitlines()
    assert len(lines) == 3 and all(0 <= float(line.split("\t")[1]) <= 5 for line in lines[1:])
    assert "CoLA" in missing(written) and "RTE" not in missing(written)
    assert (tmp_path / "out" / "submission.zip").is_file()
    (bert,) = run(small, "task=rte", "model=bert", *files)
    with pytest.raises(InputError, match="runs of several models"):
        write_submission([*folders, bert], tmp_path / "out")
