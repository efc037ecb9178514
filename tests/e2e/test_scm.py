"""Triplets from a command line to their record, in this process."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from roformer.config.position import Learned
from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError
from roformer.evaluation.ranking import ranking_accuracy
from roformer.tasks.classification import TripletTask
from tests.conf.composed import built
from tests.e2e.conftest import places, run_in_process, small_run, weights
from tests.trained import CHINESE, run_of, stored

TINY = [
    *("recipe=smoke", "tracker=none", "data.max_train_triplets=null", "training.epochs=2"),
    *("preset=roformer_512", "training.max_length=64", "model.hidden_size=32"),
    *("model.intermediate_size=64", "runtime.device=cpu"),
    "runtime.tune_process=false",
]
BUILTIN = ["data.train_triplets=40", "data.validation_triplets=8", "data.test_triplets=8"]
SMALL = [*TINY, *BUILTIN]


@pytest.fixture
def small(tmp_path):
    """Return the command line of a small run into `tmp_path`."""
    return [*SMALL, *places(tmp_path)]


def config_of(arguments, *overrides):
    return built("scm", [*arguments, *overrides])


def run(arguments, *overrides):
    """Run in this process; return (summary, folder)."""
    return run_in_process("scm", arguments, *overrides)


def task_of(arguments, *overrides) -> TripletTask:
    """Return the task of a run that has not started."""
    task = TripletTask(config_of(arguments, "training.precision=fp32", *overrides))
    task.build_model()
    return task


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return (summary, folder) of a run in fp32, to be left as it is."""
    where = places(tmp_path_factory.mktemp("trained"))
    return run([*SMALL, *where], "training.precision=fp32")


def rows_of(folder, split):
    text = (folder / "predictions" / f"{split}.tsv").read_text()
    return list(csv.DictReader(text.splitlines(), delimiter="\t"))


def write_triplets(
    folder: Path, labels: dict[str, str], words: Sequence[str] = "甲乙丙丁戊"
) -> None:
    """Write files of 12 triplets per split, each row labelled as `labels` says of its split."""
    folder.mkdir(parents=True, exist_ok=True)
    a, b, c, d, e = words
    for split, label in labels.items():
        rows = [
            {"A": f"{a}{i}{b}", "B": f"{c}{i}", "C": f"{d}{e}{i}", "label": label}
            for i in range(12)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.json").write_text(text)


# --- records -------------------------------------------------------------------------------------


def test_a_record_says_what_came_out(small, trained):
    summary, folder = trained
    assert (summary["pipeline"], summary["headline"]) == ("scm", "valid/accuracy")
    assert summary["triplets"] == {"train": 40, "validation": 8, "test": 8}
    assert summary["labels"]["validation"] == {"B": 4, "C": 4}
    assert summary["shared"] == {"validation": 0, "test": 0}
    assert summary["cut"]["validation"] == 1.0 and summary["max_length"] == 64
    assert summary["source"]["kind"] == "scm_builtin"
    for part in ("valid", "test"):
        early, late = (summary["metrics"][f"{part}/accuracy_{p}"] for p in ("early", "late"))
        assert summary["metrics"][f"{part}/accuracy"] == pytest.approx((early + late) / 2)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "valid/accuracy" in row] == [5, 10]
    assert rows[-1]["test/accuracy"] == summary["metrics"]["test/accuracy"]
    for length, share in ((64, "100%"), (1024, "0%")):
        line = f"8 triplets (closer: B 4, C 4), {share} of the pairs cut to {length} tokens"
        task = task_of(small, "preset=roformer_1024", f"training.max_length={length}")
        assert f"validation: {line}" in task.introduction()


def test_predictions_are_those_the_metrics_are_of_and_the_best_weights(small):
    """At a rate at which the last epoch is not the best; catches a test by the last weights."""
    summary, folder = run(small, "training.epochs=4", "optimizer.learning_rate=3e-2")
    assert summary["best"]["step"] < summary["steps"]
    metrics = {**summary["metrics"], **summary["best"]["metrics"]}
    task = task_of(small)
    task.model.load_state_dict(weights(folder, "best"))
    task.model.eval()
    for split, name, part in (("validation", "valid", task.valid), ("test", "test", task.test)):
        rows = rows_of(folder, split)
        scores = np.array([[float(row["score_b"]), float(row["score_c"])] for row in rows])
        labels = np.array([{"B": 0, "C": 1}[row["label"]] for row in rows])
        assert ranking_accuracy(scores, labels) == metrics[f"{name}/accuracy"]
        with torch.no_grad():
            expected = task.outputs(task.model, part.inputs[range(8)]).numpy()
        np.testing.assert_allclose(scores, expected, atol=1e-4, rtol=1e-3)


def test_predictions_are_made_in_the_precision_of_the_training(small, trained):
    """And of its validations, which choose the weights; catches another copy without autocast."""
    half = run(small, "training.precision=bf16", "training.epochs=1")
    for (_, folder), rounded in ((trained, False), (half, True)):
        for split in ("validation", "test"):
            scores = torch.tensor([float(row["score_b"]) for row in rows_of(folder, split)])
            assert torch.equal(scores.bfloat16().float(), scores) == rounded


def test_swapped_labels_give_one_minus_the_accuracy(tmp_path, capsys):
    """The same model and documents; catches labels that are not read."""
    accuracies = []
    for label in "BC":
        write_triplets(tmp_path / label, {"train": "B", "valid": label})
        given = ["data=files", f"data.path={tmp_path / label}", "tokenizer.words=none"]
        given += ["data.max_held_out_triplets=null"]
        summary, folder = run([*TINY, *places(tmp_path)], *given)
        accuracies.append(summary["metrics"]["valid/accuracy"])
        assert "test/accuracy" not in summary["metrics"]
        assert not (folder / "predictions" / "test.tsv").exists()
        assert summary["labels"]["validation"][label] == 12
        assert summary["shared"] == {"validation": 12}
        told = capsys.readouterr().out
        assert "validation: 12 of 12 triplets have a document of the training" in told
    assert sum(accuracies) == 1


# --- training ------------------------------------------------------------------------------------


def test_no_triplet_is_divided_over_micro_batches(small):
    task = task_of(small, "runtime.micro_batch_size=5")
    assert [len(key) for key in task.keys(1, 0, 1)] == [2, 2, 2, 2]
    assert task.batches[task.keys(1, 0, 1)[0]]["input_ids"].shape[:2] == (2, 2)


@pytest.mark.parametrize("loss", ["ranking", "bce"])
def test_the_loss_is_that_of_its_definition(small, loss):
    task = task_of(small, f"training.loss={loss}")
    scores, labels = torch.tensor([[2.0, -1.0], [0.5, 0.25]]), torch.tensor([0, 1])
    closer, other = torch.tensor([2.0, 0.25]), torch.tensor([-1.0, 0.5])
    if loss == "ranking":
        expected = -(closer.exp() / (closer.exp() + other.exp())).log().sum()
    else:
        expected = -(closer.sigmoid().log() + (1 - other.sigmoid()).log()).sum()
    torch.testing.assert_close(task.summed_loss(scores, labels), expected)
    batch = task.batches[[0, 1, 2]]
    assert task.targets(batch) == (3 if loss == "ranking" else 6)


def test_short_pairs_come_first_in_the_first_epoch_alone(small):
    given = ["training.max_length=512", "training.batch_size=4", "training.order=short_first"]
    task = task_of(small, *given)

    def sizes(epoch):
        steps = range(epoch * task.epochs.steps + 1, (epoch + 1) * task.epochs.steps + 1)
        batches = [task.keys(step, 0, 1)[0] for step in steps]
        assert sorted(n for batch in batches for n in batch.tolist()) == [*range(40)]
        return [int(task.batches.lengths[batch].max()).bit_length() for batch in batches]

    assert len(set(sizes(0))) > 2 and sizes(0) == sorted(sizes(0))
    assert sizes(1) != sorted(sizes(1))


# --- pooling and head ----------------------------------------------------------------------------


@pytest.mark.parametrize(("pooling", "head"), [("mean", "none"), ("cls", "dense")])
def test_padding_changes_no_score(small, pooling, head):
    """Catches a mean over padding, and a mask that does not arrive."""
    task = task_of(small, f"pair.pooling={pooling}", f"pair.head={head}")
    task.model.eval()
    batch = task.batches[[0]]
    padded = {
        name: torch.nn.functional.pad(tensor, (0, 7)) if name != "labels" else tensor
        for name, tensor in batch.items()
    }
    ones = torch.ones_like(batch["input_ids"], dtype=torch.bool)
    mask = batch.get("attention_mask", ones)
    padded["attention_mask"] = torch.nn.functional.pad(mask, (0, 7))
    with torch.no_grad():
        plain, other = (task.outputs(task.model, b) for b in (batch, padded))
    torch.testing.assert_close(plain, other, atol=1e-5, rtol=1e-4)
    assert ("pooler.weight" in dict(task.model.named_parameters())) == (head == "dense")


# --- starts --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """Return (command line, folder) of a small pre-training run on Chinese words."""
    folder = tmp_path_factory.mktemp("pretrained")
    rows = [{"text": f"原告第{i}次向被告出借款项，被告没有归还。" * 8} for i in range(60)]
    (folder / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = [
        *("recipe=smoke", "tracker=none", "data=files", f"data.path={folder / 'text.jsonl'}"),
        *("data.tokenizer.vocab_size=1024", "data.tokenizer.words=jieba", "training.steps=2"),
        *("training.sequence_length=32", "training.valid_sequences=4", "training.batch_size=4"),
        *("model.hidden_size=32", "model.intermediate_size=64", "runtime.device=cpu"),
        *("runtime.progress=false", "runtime.tune_process=false"),
        *places(folder),
    ]
    return arguments, small_run(arguments)[1]


@pytest.fixture
def known(pretrained, tmp_path):
    """Return the command line of a run on words that the text of `pretrained` has, beside that run."""
    words = ["原告", "被告", "借款", "归还", "没有"]
    write_triplets(tmp_path, {"train": "B", "valid": "C"}, words)
    files = [f"data.path={tmp_path}", "data.max_held_out_triplets=null"]
    return [*TINY, "data=files", *files, *pretrained[0][-2:]]


def test_a_run_of_ours_gives_its_weights_and_tokenizer(known, pretrained):
    _, folder = pretrained
    task = task_of(known, f"init_from={folder.name}")
    for name, tensor in weights(folder).items():
        if name.startswith("encoder."):
            assert torch.equal(task.model.state_dict()[name], tensor), name
    assert task.tokenizer.fingerprint == WordPiece.load(folder / "tokenizer").fingerprint
    assert task.introduction()[0].startswith("taken: ")


def test_auto_pretrains_this_model_and_tokenizer_once(known, pretrained):
    arguments, _ = pretrained
    given = [a for a in arguments if not a.startswith(("runtime.", "tracker", "model."))]
    given = [a for a in given if "words" not in a and "vocab" not in a]
    auto = ["init_from=auto", f"pretraining={given}", "training.epochs=1"]
    first, _ = run(known, *auto)
    # The existing run, which is equal in all that counts.
    assert [first["init_from"]] == [path.name for path in pretrained[1].parent.iterdir()]
    assert run(known, *auto)[0]["run_id"] == first["run_id"]


def test_another_level_of_tokens_than_the_weights_is_refused(small, trained):
    other = r"tokenizer\.words=none is not how .* set tokenizer.words"
    with pytest.raises(InputError, match=other):
        run(small, f"init_from={trained[1]}", "tokenizer.words=none")


def test_pairs_beyond_the_table_of_the_weights_are_refused(small, tmp_path):
    """Its own table counts, not the preset's table."""
    start = run_of(
        tmp_path / "start", stored(position=Learned(max_positions=48), tokenizer=CHINESE)
    )
    with pytest.raises(InputError, match=r"max_length=64 is beyond the learned table .*=48"):
        run(small, f"init_from={start}")
