"""Fine-tuning from a command line to its tables, in this process."""

import json
import shutil

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState, PartialState

import roformer
from roformer.cli import compose
from roformer.config.build import build
from roformer.config.glue import GlueConfig
from roformer.errors import InputError
from roformer.evaluation.glue_metrics import glue_metric
from roformer.inference.submission import missing, write_submission
from roformer.pipelines import epochs
from roformer.pipelines import finetune as finetuning
from roformer.pipelines.glue import glue
from roformer.training.loop import Loop
from tests.data import glue_tasks
from tests.e2e.conftest import assert_same, small_run

SMALL = [
    *("recipe=smoke", "tracker=none", "jobs=1", "task=mrpc"),
    *("data.train_examples=96", "data.max_train_examples=null", "data.validation_examples=40"),
    *("training.max_length=48", "training.epochs=2"),
    *("runtime.device=cpu", "runtime.progress=false", "runtime.tune_process=false"),
]


@pytest.fixture
def small(tmp_path):
    """Return the command line of a small grid into `tmp_path`."""
    return [
        *SMALL,
        f"runtime.runs_dir={tmp_path / 'runs'}",
        f"runtime.cache_dir={tmp_path / 'cache'}",
    ]


def run(arguments, *overrides):
    """Run a grid in this process; return the folders of its cells."""
    AcceleratorState._reset_state()
    PartialState._reset_state()
    config = build(GlueConfig, compose("glue", [*arguments, *overrides]))
    return glue(config)


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def test_a_grid_is_the_product_and_finished_cells_are_kept(small, capsys, monkeypatch):
    grid = ["task=[mrpc,stsb]", "optimizer.learning_rate=[1e-3,2e-3]", "seed=[0,1]"]
    folders = run(small, "task=mrpc", "optimizer.learning_rate=1e-3", "seed=1")
    (first,) = folders
    written = (first / "summary.json").stat().st_mtime_ns
    folders = run(small, *grid)
    assert len(folders) == 8 and first in folders
    assert (first / "summary.json").stat().st_mtime_ns == written
    cells = {(s["task"], s["learning_rate"], s["seed"]) for s in map(summary_of, folders)}
    assert cells == {(t, r, s) for t in ("mrpc", "stsb") for r in (1e-3, 2e-3) for s in (0, 1)}
    # The weights of each task's best cell are kept, without the optimizer's; the others' are not.
    kept = [folder for folder in folders if (folder / "checkpoints").exists()]
    assert sorted(summary_of(folder)["task"] for folder in kept) == ["mrpc", "stsb"]
    for folder in kept:
        summary = summary_of(folder)
        headline = summary["headline"]
        value = summary["best"]["metrics"].get(headline)
        others = [s["best"]["metrics"].get(headline) for s in map(summary_of, folders)]
        assert value is None or value == max(v for v in others if v is not None)
        assert not list(folder.glob("checkpoints/step_*/optimizer.safetensors"))
    monkeypatch.setattr(Loop, "run", lambda self: pytest.fail("a finished cell was trained again"))
    assert run(small, *grid) == folders


def test_a_record_says_what_came_out(small):
    (folder,) = run(small, "task=mnli")
    summary = summary_of(folder)
    assert summary["pipeline"] == "glue" and summary["init_from"] == "scratch"
    assert summary["headline"] == "mnli/accuracy_matched"
    assert {"mnli/accuracy_matched", "mnli/accuracy_mismatched"} <= summary["metrics"].keys()
    assert list(summary["majority"].values()) == [pytest.approx(1 / 3)] * 2
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluated = [row for row in rows if "mnli/accuracy_matched" in row]
    assert [row["step"] for row in evaluated] == [6, 12]  # the end of each epoch, nowhere else
    best = max(evaluated, key=lambda row: row["mnli/accuracy_matched"])
    assert summary["best"]["step"] == best["step"]


@pytest.mark.parametrize("task", ["mrpc", "stsb", "sst2"])
def test_predictions_are_those_the_metrics_are_of(small, task):
    """The files hold the best epoch; the metric computed from them is the recorded one."""
    (folder,) = run(small, f"task={task}")
    lines = (folder / "predictions" / "validation.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines[1:]]
    labels = glue_tasks.TASKS[task].labels
    value = float if labels is None else labels.index
    references, predictions = ([value(row[column]) for row in rows] for column in (1, 2))
    for name, expected in summary_of(folder)["best"]["metrics"].items():
        if name.startswith(f"{task}/") and not name.endswith("constant"):
            metric = glue_metric(name.partition("/")[2], predictions, references)
            assert metric == pytest.approx(expected, abs=1e-4)


def test_a_killed_cell_goes_on_as_if_never_stopped(small, tmp_path, monkeypatch):
    (calm,) = run(small, f"runtime.runs_dir={tmp_path / 'calm'}", "keep_weights=all")
    update = Loop._update

    def dying(loop, batches):
        if loop.state.step == 9:
            raise KeyboardInterrupt
        update(loop, batches)

    monkeypatch.setattr(Loop, "_update", dying)
    with pytest.raises(KeyboardInterrupt):
        run(small)
    monkeypatch.setattr(Loop, "_update", update)
    (resumed,) = run(small, "keep_weights=all")
    assert_same(resumed, calm)
    predictions = "predictions/validation.tsv"
    assert (resumed / predictions).read_text() == (calm / predictions).read_text()


def test_accumulation_equals_one_batch(small, tmp_path):
    _, whole = run(small, "seed=[0]")[0], summary_of(run(small, "seed=[0]")[0])
    (cut,) = run(small, "runtime.micro_batch_size=5", f"runtime.runs_dir={tmp_path / 'cut'}")
    ours = summary_of(cut)["metrics"]["valid/loss"]
    assert ours == pytest.approx(whole["metrics"]["valid/loss"], rel=1e-4)


def test_a_model_that_answers_always_the_same_is_told(small, monkeypatch):
    outputs = finetuning.ClassificationTask._outputs

    def same(*args):
        rows = outputs(*args)
        rows[:, :-1] = torch.tensor([0.0, 1.0])
        return rows

    monkeypatch.setattr(finetuning.ClassificationTask, "_outputs", same)
    (folder,) = run(small)
    summary = summary_of(folder)
    assert summary["status"] == "degenerate"
    assert summary["metrics"]["mrpc/f1"] == pytest.approx(2 / 3)  # looks well, is nothing


def test_a_regression_that_is_constant_has_no_correlation(small, monkeypatch):
    outputs = finetuning.ClassificationTask._outputs

    def same(*args):
        rows = outputs(*args)
        rows[:, 0] = 2.5
        return rows

    monkeypatch.setattr(finetuning.ClassificationTask, "_outputs", same)
    (folder,) = run(small, "task=stsb")
    summary = summary_of(folder)
    assert summary["status"] == "degenerate"
    assert summary["metrics"]["stsb/spearman"] is None and summary["best"]["metrics"] == {}


def test_every_prediction_is_counted():
    whole = torch.tensor([[0.5, 1.0], [0.1, 1.0]])
    assert epochs.checked(whole, 2).tolist() == [[0.5], pytest.approx([0.1])]
    for times in (0.0, 2.0):
        wrong = whole.clone()
        wrong[1, -1] = times
        with pytest.raises(AssertionError, match="outputs of 1 of 2 rows"):
            epochs.checked(wrong, 2)


# --- where it starts -----------------------------------------------------------------------------


@pytest.fixture
def pretrained(arguments):
    """Return the folder of a small pre-training run."""
    return small_run(arguments)[1]


def test_it_starts_from_a_pretraining_run_by_folder_or_id(small, pretrained, capsys):
    folders = run(small, f"init_from={pretrained}")
    printed = capsys.readouterr().out
    assert "new: pooler.weight, pooler.bias, classifier.weight, classifier.bias" in printed
    unused = printed.partition("not used: ")[2].splitlines()[0].split(", ")
    assert sorted(unused) == [
        "bias",
        "norm.bias",
        "norm.weight",
        "transform.bias",
        "transform.weight",
    ]
    assert summary_of(folders[0])["init_from"] == pretrained.name
    assert run(small, f"init_from={pretrained.name}") == folders
    config = (folders[0] / "config.yaml").read_text()
    assert f"init_from: {pretrained.name}" in config and "size: tiny" in config


def test_a_certain_checkpoint_is_not_taken_for_its_run(small, pretrained):
    early = pretrained / "checkpoints" / "step_00000006"
    (first,) = run(small, f"init_from={early}")
    (last,) = run(small, f"init_from={pretrained}")
    assert summary_of(first)["init_from"] == str(early)
    ours, theirs = (summary_of(folder)["metrics"]["valid/loss"] for folder in (first, last))
    assert ours != theirs


def test_a_hub_model_is_read_from_its_snapshot(small, tmp_path, monkeypatch):
    """Through a stand-in for the download: what is asked for, and what is made of it."""
    import huggingface_hub
    from transformers import BertConfig, BertModel

    asked = []

    def snapshot(repository, *, revision, allow_patterns):
        asked.append((repository, revision))
        return str(tmp_path / "snapshot")

    config = BertConfig(
        vocab_size=glue_tasks.TOKENIZER.size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(tmp_path / "snapshot")
    glue_tasks.TOKENIZER.save(tmp_path / "snapshot")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    (folder,) = run(small, "init_from=owner/name", f"init_revision={glue_tasks.COMMIT}")
    assert asked[0] == ("owner/name", glue_tasks.COMMIT)
    assert summary_of(folder)["init_from"] == "owner/name"
    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="init_from=owner/other cannot be read as a Hugging Face"):
        run(small, "init_from=owner/other")


def test_auto_makes_the_pretraining_run_once(small, arguments):
    pretraining = [a for a in arguments if not a.startswith("runtime.")]
    more = ["init_from=auto", f"pretraining={json.dumps(pretraining)}"]
    (folder,) = run(small, *more)
    made = summary_of(folder)["init_from"]
    assert made.startswith("roformer-rotary-smoke-")
    (other,) = run(small, *more, "model=bert")
    assert summary_of(other)["init_from"].startswith("bert-learned-smoke-")
    assert run(small, *more) == [folder]


def test_a_fine_tuned_model_can_be_the_start_of_another(small, capsys):
    (first,) = run(small, "task=mnli")
    (second,) = run(small, f"init_from={first}")
    assert "new: classifier.weight, classifier.bias" in capsys.readouterr().out
    assert summary_of(second)["init_from"] == str(first)


def test_wrong_starts_are_refused(small, pretrained, tmp_path):
    def refused(*overrides):
        with pytest.raises(InputError) as refusal:
            run(small, *overrides)
        assert "\n" not in str(refusal.value)
        return str(refusal.value)

    assert "no such run, folder or Hub id" in refused("init_from=nowhere")
    assert "is not the tokenizer that" in refused(
        f"init_from={pretrained}", f"tokenizer.source={_vocabulary(tmp_path)}"
    )
    shutil.copytree(pretrained, other := tmp_path / "other")
    words = (other / "tokenizer" / "vocab.txt").read_text().splitlines()
    words[-2:] = words[:-3:-1]
    (other / "tokenizer" / "vocab.txt").write_text("\n".join(words) + "\n")
    assert "is not the one that step_00000024 was trained with" in refused(f"init_from={other}")
    shutil.rmtree(other / "tokenizer")
    assert "has no tokenizer/" in refused(f"init_from={other}")
    (pretrained / "checkpoints" / "last" / "model.safetensors").write_bytes(b"cut")
    shutil.rmtree(pretrained / "checkpoints" / "step_00000018", ignore_errors=True)
    for step in (6, 12):
        shutil.rmtree(pretrained / "checkpoints" / f"step_{step:08d}", ignore_errors=True)
    assert "no complete checkpoint" in refused(f"init_from={pretrained}")


def _vocabulary(folder):
    path = folder / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]) + "\n")
    return path


@pytest.mark.parametrize("kind", ["bert", "roformer"])
def test_it_starts_from_a_hugging_face_folder(small, tmp_path, kind, capsys):
    """Their names in, ours out; weights that are not an encoder's are refused."""
    from transformers import AutoModelForMaskedLM, BertConfig, RoFormerConfig

    config = {"bert": BertConfig, "roformer": RoFormerConfig}[kind](
        vocab_size=glue_tasks.TOKENIZER.size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    folder = tmp_path / "theirs"
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    glue_tasks.TOKENIZER.save(folder)
    (cell,) = run(small, f"init_from={folder}", "training.epochs=1")
    assert "new: pooler.weight" in capsys.readouterr().out
    summary = summary_of(cell)
    assert summary["model"] == kind and summary["init_from"] == str(folder)
    content = json.loads((folder / "config.json").read_text())
    for key, value, message in [
        ("hidden_act", "relu", "hidden_act=relu cannot be read"),
        ("num_hidden_layers", 3, "lacks weights of the encoder"),
        ("model_type", "gpt2", "type gpt2 cannot be read"),
    ]:
        (folder / "config.json").write_text(json.dumps({**content, key: value}))
        with pytest.raises(InputError, match=message):
            run(small, f"init_from={folder}", "training.epochs=1")


# --- using what came out -------------------------------------------------------------------------


def test_a_loaded_model_predicts_what_the_run_predicted(small):
    (folder,) = run(small)
    trained = roformer.load_model(folder)
    assert trained.labels == ["not_equivalent", "equivalent"] and trained.task == "mrpc"
    from roformer.data.toy.glue import builtin_examples

    examples = builtin_examples("mrpc", "validation", 40)
    pairs = [(example.text_a, example.text_b) for example in examples]
    predictions = list(trained.predict(pairs))
    lines = (folder / "predictions" / "validation.tsv").read_text().splitlines()[1:]
    assert [p.label for p in predictions] == [line.split("\t")[2] for line in lines]
    logits = np.array([line.split("\t")[3:] for line in lines], dtype=float)
    expected = np.exp(logits).max(1) / np.exp(logits).sum(1)
    assert [p.score for p in predictions] == pytest.approx(expected, abs=1e-3)
    with pytest.raises(InputError, match="mrpc takes pairs"):
        list(trained.predict(["one text"]))


def test_a_pretrained_model_loads_but_does_not_classify(pretrained):
    trained = roformer.load_model(pretrained)
    assert trained.task is None
    with pytest.raises(InputError, match="was not fine-tuned"):
        list(trained.predict(["a"]))


def test_texts_that_are_too_long_are_cut_counted_and_told(small, capsys):
    (folder,) = run(small, "training.max_length=12", "training.epochs=1")
    assert "train examples are longer than 12 tokens and were cut" in capsys.readouterr().out
    (prediction,) = roformer.load_model(folder).predict([("a " * 20, "b " * 20)])
    assert prediction.cut


def test_a_learned_table_bounds_the_length(small, capsys):
    run(small, "model=bert", "model.position.max_positions=16", "training.epochs=1")
    assert "longer than 16 tokens and were cut" in capsys.readouterr().out


def test_a_submission_has_the_servers_files(small, tmp_path):
    """Labels by name or number, scores in range, every test row once; labels are never read."""
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


def test_builtin_data_has_no_test_sets(small, tmp_path):
    with pytest.raises(InputError, match="mrpc has no test split"):
        write_submission(run(small), tmp_path / "out")


def test_label_names_are_saved_with_the_model(small):
    (folder,) = run(small, "keep_weights=all")
    description = json.loads((folder / "checkpoints" / "best" / "model.json").read_text())
    assert description["labels"] == ["not_equivalent", "equivalent"]
    assert description["task"] == "mrpc" and description["max_length"] == 48
