"""Runs that were trained, not made by hand, are exported and open without our code."""

import json

import pytest
from accelerate.state import AcceleratorState, PartialState
from huggingface_hub import ModelCard
from sacremoses import MosesDetokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import roformer
from roformer.cli import compose
from roformer.config.build import build
from roformer.config.glue import GlueConfig
from roformer.data.bpe import split_words
from roformer.inference.export import export
from roformer.pipelines.glue import glue
from tests.e2e import wmt_runs
from tests.e2e.conftest import small_run as pretraining_run
from tests.e2e.elsewhere import open_elsewhere


def card_metrics(folder):
    card = ModelCard.load(folder / "README.md")
    return {each.metric_type: each.metric_value for each in card.data.eval_results}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["roformer", "bert"])
def test_a_trained_run_and_what_was_measured_of_it(arguments, tmp_path, model):
    """Pre-training, then fine-tuning on it: the records that real runs leave are enough."""
    summary, run = pretraining_run(arguments, f"model={model}")
    written = export(run)
    assert written.kind == model and written.checkpoint == "step_00000024"
    assert card_metrics(written.folder) == summary["metrics"]
    AcceleratorState._reset_state()
    PartialState._reset_state()
    overrides = [
        *("recipe=smoke", "tracker=none", "jobs=1", "task=mnli", f"model={model}"),
        *("data.train_examples=96", "data.max_train_examples=null", "data.validation_examples=40"),
        *("training.max_length=32", "training.epochs=2", f"init_from={run}"),
        *("runtime.device=cpu", "runtime.progress=false", "runtime.tune_process=false"),
        *(f"runtime.runs_dir={tmp_path / 'runs'}", f"runtime.cache_dir={tmp_path / 'cache'}"),
    ]
    config = build(GlueConfig, compose("glue", overrides))
    (cell,) = glue(config)
    written = export(cell)
    assert written.kind == {"roformer": "jina_embeddings_v3", "bert": "bert"}[model]
    best = json.loads((cell / "summary.json").read_text())["best"]
    assert written.checkpoint == f"step_{best['step']:08d}"
    assert card_metrics(written.folder) == best["metrics"]
    pairs = [(f"{a} sel min", "kor tu") for a in ("ba", "del", "gin", "bu")]
    (answers,) = open_elsewhere([("text-classification", str(written.folder), pairs)]).values()
    for wanted, found in zip(roformer.load_model(cell).predict(pairs), answers, strict=True):
        assert (found["label"], found["score"]) == (wanted.label, pytest.approx(wanted.score, 1e-4))


@pytest.mark.slow
@pytest.mark.parametrize("words", ["bytes", "moses"])
def test_a_trained_translation_run(tmp_path, words):
    """Its averaged checkpoint, through their generate, writes what the run wrote for its test set."""
    wmt_runs.write_parallel_text(tmp_path / "text", pairs=2000)
    summary, run = wmt_runs.small_run(
        [
            *wmt_runs.SMALL,
            *("model=transformer", f"data.path={tmp_path / 'text'}", "training.steps=200"),
            *("training.checkpoint_every=50", "training.evaluate_every=100"),
            *(f"data.tokenizer.words={words}", f"runtime.cache_dir={tmp_path / 'cache'}"),
            f"runtime.runs_dir={tmp_path / 'runs'}",
        ]
    )
    written = export(run)
    assert written.kind == "pegasus" and written.checkpoint == "averaged"
    names = ("test/sacrebleu", "test/chrf", "test/bleu_compound")
    assert card_metrics(written.folder) == {name: summary["metrics"][name] for name in names}
    tokenizer = AutoTokenizer.from_pretrained(written.folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(written.folder).eval()
    lines = (run / "translations" / "test.source.txt").read_text().splitlines()
    expected = (run / "translations" / "test.averaged.txt").read_text().splitlines()
    same = 0
    for line, translation in zip(lines, expected, strict=True):
        text = split_words([line], words, "en")[0]
        batch = tokenizer(text, truncation=True, return_tensors="pt")
        found = tokenizer.decode(model.generate(**batch)[0], skip_special_tokens=True)
        if words == "moses":
            found = MosesDetokenizer("de").detokenize(found.split(), unescape=False)
        same += found == translation
    assert same == len(lines) and len(set(expected)) >= 5
