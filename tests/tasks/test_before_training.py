"""Runs before their first step: late failures are reported early; a task has the run's settings."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from roformer import registry
from roformer.config.composing import compose
from roformer.config.position import Learned
from roformer.config.wmt import BpeConfig
from roformer.data.random import IGNORED
from roformer.errors import InputError
from roformer.pipelines import glue
from roformer.pipelines.glue import cells_of
from roformer.tasks import baselines
from roformer.tasks.classification import ClassificationTask
from roformer.tasks.translation import TranslationTask
from roformer.training import distributed
from tests.data.parallel_texts import ENGLISH, GERMAN, joint_bpe
from tests.e2e import wmt_runs
from tests.e2e.conftest import write_corpus
from tests.e2e.wmt_runs import write_parallel_text
from tests.report.records import WHOLE
from tests.trained import run_of, stored

HERE = ["tracker=none", "runtime.progress=false", "runtime.device=cpu"]


def composed(pipeline, *words):
    return compose(pipeline, [*words, *HERE])


def begin(pipeline, config):
    """Build the task of a run, which is the last thing before its first step."""
    registry.get(pipeline).task(config).build_model()


def test_a_test_text_shorter_than_a_block(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"some text " * 1000)
    data = ["data=files", f"data.path={tmp_path / 'a.txt'}", "data.test_fraction=0.005"]
    config = composed("charlm", "recipe=smoke", *data, f"runtime.cache_dir={tmp_path / 'cache'}")
    with pytest.raises(InputError, match="the split has 50 tokens, less than one block of 64"):
        begin("charlm", config)


@pytest.mark.parametrize("pipeline", ["pretrain", "clm", "charlm", "convert"])
def test_a_batch_larger_than_the_training_text(tmp_path, pipeline):
    """A batch of every block trains; one more block is an error."""
    write_corpus(tmp_path / "a.jsonl", documents=100)
    words = ["recipe=smoke", "data=files", f"data.path={tmp_path / 'a.jsonl'}"]
    words += ["training.sequence_length=32", f"runtime.cache_dir={tmp_path / 'cache'}"]
    if pipeline == "convert":
        original = stored(position=Learned(max_positions=64), name="bert")
        words.append(f"init_from={run_of(tmp_path / 'original', original)}")
    elif pipeline != "charlm":
        words.append("data.tokenizer.vocab_size=200")
    line = r"training\.batch_size=100000 is more than the ([\d,]+) training blocks of 32: lower it"
    with pytest.raises(InputError, match=line) as error:
        begin(pipeline, composed(pipeline, *words, "training.batch_size=100000"))
    blocks = int(re.search(line, str(error.value))[1].replace(",", ""))
    begin(pipeline, composed(pipeline, *words, f"training.batch_size={blocks}"))
    with pytest.raises(InputError, match="is more than the"):
        begin(pipeline, composed(pipeline, *words, f"training.batch_size={blocks + 1}"))


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_sentence_beyond_the_learned_table(tmp_path, split):
    """The training's pairs are filtered by their length, the other two splits are not."""
    write_parallel_text(tmp_path / "text")
    for language in ("en", "de"):
        with open(tmp_path / "text" / f"{split}.{language}", "a") as stream:
            stream.write("word " * 100 + "\n")
    words = ["recipe=smoke", "data=files", f"data.path={tmp_path / 'text'}"]
    words += ["data.tokenizer.words=bytes", "data.tokenizer.merges=100"]
    words += ["data.filter.max_length=40", f"runtime.cache_dir={tmp_path / 'cache'}"]
    table = ["model/position=learned", "model.position.max_positions=64"]
    with pytest.raises(InputError, match=rf"the longest sentence of data\.{split}, \d+ tokens"):
        begin("wmt", composed("wmt", *words, *table))
    begin("wmt", composed("wmt", *words))


def test_a_warm_up_longer_than_a_fine_tuning(tmp_path):
    words = ["recipe=smoke", "task=mrpc", f"runtime.cache_dir={tmp_path}"]
    warmup = ["schedule.warmup_fraction=null", "schedule.warmup_steps=4"]
    (cell,) = cells_of(composed("glue", *words, *warmup))
    with pytest.raises(InputError, match="warmup_steps=4 leaves nothing of the training's 4 steps"):
        begin("glue", cell)


def test_two_texts_of_one_type():
    words = ["recipe=smoke", "task=[sst2,mrpc]", "model.token_types=1"]
    with pytest.raises(InputError, match=r"task=mrpc has two texts, and model\.token_types=1"):
        list(cells_of(composed("glue", *words)))


# --- and after a grid, whose weights are kept ----------------------------------------------------


def cell(root, name, value, *, status="done", weights=True, task="mrpc"):
    """Write what is left of a cell."""
    best = {"step": 1, "metrics": {f"{task}/f1": value}}
    about = WHOLE | {"run_id": name, "status": status, "best": best}
    about |= {"task": task, "headline": f"{task}/f1"}
    (root / name).mkdir()
    (root / name / "summary.json").write_text(json.dumps(about))
    if weights:
        (root / name / "checkpoints").mkdir()
    return root / name


def test_the_best_cell_that_ended_well_and_has_weights_keeps_them(tmp_path):
    cells = {
        "a": cell(tmp_path, "a", 0.7),
        "best": cell(tmp_path, "best", 0.8),
        "failed": cell(tmp_path, "failed", 0.9, status="failed"),
        "bare": cell(tmp_path, "bare", 0.9, weights=False),
        "undefined": cell(tmp_path, "undefined", None, status="degenerate"),
        "other": cell(tmp_path, "other", 0.1, status="failed", task="sst2"),
    }
    assert glue.forget_weights([*cells.values()]) == [cells["best"]]
    left = [name for name, folder in cells.items() if (folder / "checkpoints").exists()]
    assert left == ["best", "other"]


# --- what the settings come to -------------------------------------------------------------------


def test_unigrams_are_counted_in_what_is_read_and_told_in_bits(tmp_path):
    text = "".join(chr(97 + i * i % 23) for i in range(4000)) + "z" * 4000
    (tmp_path / "a.txt").write_text(text)
    words = ["recipe=smoke", "data=files", f"data.path={tmp_path / 'a.txt'}", "training.steps=9"]
    words += ["training.batch_size=4", f"runtime.cache_dir={tmp_path / 'cache'}"]
    config = composed("charlm", *words)
    text = baselines.prepare_text_of_bytes(config)
    counts = np.bincount(text.train[: 36 * config.training.sequence_length], minlength=256)
    once, twice = (np.count_nonzero(counts == n) for n in (1, 2))
    less = (once + 1) / (once + 2 * twice + 2)
    chance = (np.maximum(counts - less, 0) + less * np.count_nonzero(counts) / 256) / counts.sum()
    found = baselines.of_bytes(config)["unigram"]["test/bits_per_byte"]
    assert found == pytest.approx(-np.log2(chance[text.test[1:]]).mean())


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    """The overrides of a small parallel text, prepared once."""
    folder = tmp_path_factory.mktemp("pairs")
    write_parallel_text(folder / "text")
    return [f"data.path={folder / 'text'}", f"runtime.cache_dir={folder / 'cache'}"]


def test_translation_is_smoothed_and_cut_as_the_config_says(where):
    more = ["training.label_smoothing=0.2", "runtime.micro_batch_size=3"]
    task = TranslationTask(composed("wmt", *wmt_runs.SMALL, *where, *more))
    task.build_model()
    keys = task.keys(1, 0, 1)
    assert max(map(len, keys)) == 3
    inputs, model = task.batches[keys[0]], task.model.eval()
    labels, predict = inputs.pop("labels"), inputs.pop("predict")
    expected = functional.cross_entropy(
        *(model(**inputs).transpose(1, 2), labels),
        ignore_index=IGNORED,
        label_smoothing=0.2,
        reduction="sum",
    )
    torch.testing.assert_close(
        task.loss(model, inputs | {"labels": labels, "predict": predict}), expected
    )


def test_translation_on_more_processes_than_the_end_of_an_epoch_has_pairs(where, monkeypatch):
    """Every process takes part in every step. A start on more than the first step has is an error."""
    task = TranslationTask(composed("wmt", *wmt_runs.SMALL, *where, "runtime.micro_batch_size=2"))
    task.build_model()
    last = next(step for step in range(1, 99) if task.steps.locate(step + 1)[0] == 1)
    pairs = sorted(np.concatenate(task.steps[last]))
    keys = [task.keys(last, rank, len(pairs) + 2) for rank in range(len(pairs) + 2)]
    assert sorted(number for key in keys for part in key for number in part) == pairs
    assert [list(map(len, key)) for key in keys[-2:]] == [[0], [0]]
    assert len(task.batches[keys[-1][0]]["input_ids"]) == 1
    pairs = sum(map(len, task.steps[1]))
    monkeypatch.setattr(distributed, "process_count", lambda: pairs + 1)
    with pytest.raises(
        InputError, match=rf"a step has {pairs} pairs, less than.*tokens_per_update"
    ):
        begin("wmt", composed("wmt", *wmt_runs.SMALL, *where))


CURLY = ["The thud of Gladiator’s hoofs was heard.", "“Bravo, Vronsky!” he said."]


@pytest.mark.parametrize(
    ("words", "lines", "exact"),
    [("moses", GERMAN, True), ("moses", CURLY, False), ("bytes", CURLY, True)],
)
def test_the_ceiling_is_the_score_of_the_detokenized_references(words, lines, exact):
    tokenizer = joint_bpe(ENGLISH, [*GERMAN, *CURLY], BpeConfig(words=words, merges=300))
    text = SimpleNamespace(
        tokenizer=tokenizer, texts=lambda split: ([], lines), train=SimpleNamespace(source=[0])
    )
    task = SimpleNamespace(text=text, model=nn.Linear(1, 1))
    _, ceiling = TranslationTask.introduction(task)
    assert ("sacreBLEU 100.00" in ceiling) is exact


@pytest.mark.parametrize(("limit", "epochs"), [(97, 5), (96, 2)])
def test_small_tasks_have_epochs_of_their_own(tmp_path, limit, epochs):
    words = ["recipe=smoke", "task=mrpc", "data.max_train_examples=null", "data.train_examples=96"]
    words += ["training.epochs=2", "training.small_task_epochs=5"]
    words += [f"training.small_task_examples={limit}", f"runtime.cache_dir={tmp_path}"]
    (cell,) = cells_of(composed("glue", *words))
    task = ClassificationTask(cell)
    task.build_model()
    assert task.training.steps == epochs * task.epochs.steps


@pytest.mark.parametrize("launched", [0, 2])
def test_cells_run_one_a_core_or_one_over_all_processes(tmp_path, monkeypatch, launched):
    """Else every rank of a launched grid would start its own workers."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if launched:
        monkeypatch.setenv("WORLD_SIZE", str(launched))
    seen = []
    monkeypatch.setattr(glue, "run_cells", lambda cells, jobs, progress: seen.append(jobs))
    monkeypatch.setattr(glue, "usable_cores", lambda: [0, 1])
    words = ["recipe=smoke", "task=mrpc", "seed=[0,1,2]"]
    words += [f"runtime.runs_dir={tmp_path}", f"runtime.cache_dir={tmp_path}"]
    glue.glue(composed("glue", *words))
    assert seen == [1 if launched > 1 else 2]
