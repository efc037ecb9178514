"""The paper's recipes have the paper's numbers, and a baseline differs in what it is named for alone."""

import pytest

from roformer.cli import CONF
from tests.conf.test_compose import config, differing


def of(pipeline, *overrides):
    return config(*overrides, pipeline=pipeline)


def sizes(model):
    return model.layers, model.hidden_size, model.heads, model.intermediate_size


# --- pre-training --------------------------------------------------------------------------------


def test_pre_training_is_the_papers():
    """Section 4.2: bert-base, batch 64, length 512, 100k steps, AdamW at 1e-5, 8:2."""
    built = config("recipe=paper", "data=hub")
    training = built.training
    assert (training.batch_size, training.sequence_length, training.steps) == (64, 512, 100_000)
    assert sizes(built.model) == (12, 768, 12, 3072)
    assert (built.optimizer.learning_rate, built.data.valid_fraction) == (1e-5, 0.2)
    assert built.data.sources[0].path == "wikimedia/wikipedia"


def test_the_warm_start_is_the_authors_script():
    """Batch 64 with 4 accumulated; lr_schedule={20000: 1} counts micro-batches, four of them a step."""
    built = config("recipe=paper_warmstart", "init_from=x")
    schedule, optimizer = built.schedule, built.optimizer
    assert built.training.batch_size == 64 * 4
    assert (schedule.kind, schedule.warmup_steps) == ("constant", 20_000 // 4)
    assert schedule.initial_ratio == 0.0
    assert (optimizer.learning_rate, optimizer.weight_decay) == (1e-5, 0.01)


@pytest.mark.parametrize(
    ("pipeline", "one", "other", "expected"),
    [
        ("pretrain", "recipe=paper", "recipe=paper_tuned", {"recipe", "optimizer", "schedule"}),
        ("pretrain", "model=roformer", "model=bert", {"model"}),
        ("wmt", "model=roformer", "model=transformer", {"model"}),
        ("clm", "model/position=rotary", "model/position=learned", {"model"}),
        ("glue", "recipe=paper init_from=x", "recipe=stable init_from=x", {"recipe", "training"}),
        (
            "wmt",
            "recipe=paper data=hub",
            "recipe=paper_big data=hub",
            {"recipe", "model", "training"},
        ),
        ("scm", "preset=roformer_512", "preset=roformer_1024", {"training"}),
        ("scm", "preset=wobert_512", "preset=roformer_512", {"model"}),
        ("scm", "preset=bert_512", "preset=wobert_512", {"model", "tokenizer"}),
    ],
)
def test_two_configurations_differ_in_one_thing_alone(pipeline, one, other, expected):
    ours, theirs = (of(pipeline, *given.split()) for given in (one, other))
    assert differing(ours, theirs) == expected
    if expected == {"model"}:
        assert differing(ours.model, theirs.model) <= {"name", "position"}


def test_wobert_is_bert_and_chinese_words_come_with_the_data():
    wobert, bert = (config(f"model={name}").model for name in ("wobert", "bert"))
    assert differing(wobert, bert) == {"name"}
    for data in ("chinese_builtin", "chinese_hub"):
        assert config(f"data={data}").data.tokenizer.words == "jieba"
    chinese, english = (config(f"data={data}").data.sources[0] for data in ("chinese_hub", "hub"))
    assert differing(chinese, english) == {"name"}
    assert (chinese.name, english.name) == ("20231101.zh", "20231101.en")


# --- fine-tuning ---------------------------------------------------------------------------------


def test_glue_is_the_papers():
    """Section 4.3: 3 epochs, length 512, batch 32, lr 2, 3, 4, 5e-5; F1 for MRPC and QQP, Spearman
    for STS-B, accuracy for the rest."""
    built = of("glue", "recipe=paper", "init_from=x", "data=hub")
    training = built.training
    assert (training.epochs, training.max_length, training.batch_size) == (3, 512, 32)
    assert built.optimizer.learning_rate == [2e-5, 3e-5, 4e-5, 5e-5] and len(built.seed) >= 5
    assert sizes(built.model)[:2] == (12, 768)
    assert built.data.path == "nyu-mll/glue" and len(built.data.revision) == 40
    headlines = {"mrpc": "f1", "qqp": "f1", "stsb": "spearman"}
    headlines |= dict.fromkeys(("sst2", "qnli", "mnli"), "accuracy")
    assert {name: task.metrics[0] for name, task in built.task.items()} == headlines
    stable = of("glue", "recipe=stable", "init_from=x")
    assert differing(training, stable.training) == {"small_task_epochs"}
    assert stable.schedule.warmup_fraction == 0.1


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("bert_512", ("bert", "learned", "none", 512)),
        ("wobert_512", ("wobert", "learned", "jieba", 512)),
        ("roformer_512", ("roformer", "rotary", "jieba", 512)),
        ("roformer_1024", ("roformer", "rotary", "jieba", 1024)),
    ],
)
def test_presets_are_the_models_of_tables_3_and_5(preset, expected):
    built = of("scm", f"preset={preset}")
    found = (built.model.name, built.model.position.kind, built.tokenizer.words)
    assert (*found, built.training.max_length) == expected


def test_triplets_are_the_authors_script():
    built = of("scm", "recipe=paper", "init_from=x", "data=files", "data.path=x")
    training, pair = built.training, built.pair
    assert (training.loss, training.batch_size, training.max_length) == ("bce", 2, 1024)
    assert (built.optimizer.learning_rate, built.schedule.kind) == (6e-6, "constant")
    assert (pair.pooling, pair.head, pair.token_types) == ("mean", "none", "zeros")
    assert built.data.split == "shipped" and training.epochs * 2 == 20
    assert sizes(built.model)[:2] == (12, 768)


# --- translation and language models -------------------------------------------------------------


def test_translation_is_the_papers():
    """Section 4.1 and what it takes from Vaswani et al. 2017, section 5 and table 3."""
    built = of("wmt", "recipe=paper", "data=hub")
    model, training, schedule, search = built.model, built.training, built.schedule, built.search
    assert sizes(model) == (6, 512, 8, 2048) and model.decoder.layers == 6
    assert (model.norm, model.activation, model.hidden_dropout) == ("post", "relu", 0.1)
    assert (training.label_smoothing, training.average) == (0.1, 5)
    assert (training.tokens_per_update, training.steps) == (25_000, 100_000)
    assert built.optimizer.betas == (0.9, 0.98)
    assert (schedule.kind, schedule.warmup_steps) == ("inverse_sqrt", 4000)
    assert built.optimizer.learning_rate == 5e-4
    assert built.optimizer.learning_rate * schedule.initial_ratio == pytest.approx(1e-7)
    assert (search.beam, search.length_penalty, search.alpha) == (4, "fairseq", 0.6)
    assert built.data.tokenizer.merges == 40_000
    assert (built.data.path, built.data.name, built.data.test_lines) == ("wmt/wmt14", "de-en", 3003)


def test_english_french_is_the_base_model_of_shaw():
    """Shaw et al. 2018, section 4.1: the base model that has 38.2 and 38.7 BLEU on EN-FR."""
    built = of("wmt", "recipe=paper_enfr", "data=hub", "model/position=shaw")
    model, training, schedule, search = built.model, built.training, built.schedule, built.search
    assert sizes(model) == (6, 512, 8, 1024)
    assert (model.hidden_dropout, model.position.clip) == (0.1, 16)
    assert (training.steps, training.average, training.tokens_per_update) == (100_000, 1, 25_000)
    assert (built.data.name, built.data.target_language) == ("fr-en", "fr")
    assert (schedule.kind, schedule.warmup_steps) == ("inverse_sqrt", 4000)
    assert schedule.initial_ratio == 0.0
    assert built.optimizer.learning_rate == pytest.approx((512 * 4000) ** -0.5, rel=1e-6)
    assert (search.beam, search.length_penalty, search.alpha) == (4, "gnmt", 0.6)


def test_big_is_vaswanis_big():
    """Checkpoints of ten minutes at 0.4 s a step in base, 1.0 s in big; 20 of them span 12,000 steps."""
    base, big = (of("wmt", f"recipe={name}", "data=hub") for name in ("paper", "paper_big"))
    assert base.training.checkpoint_every * 0.4 == big.training.checkpoint_every * 1.0 == 600
    assert big.training.average * big.training.checkpoint_every == 12_000
    assert (big.model.hidden_size, big.model.heads, big.model.hidden_dropout) == (1024, 16, 0.3)
    assert big.training.steps == 300_000
    shaw = ["model=transformer", "model/position=shaw", "model.position.clip=8"]
    assert of("wmt", "recipe=paper_big", "data=hub", *shaw).model.position.clip == 8
    recipe = CONF / "pipelines" / "wmt" / "recipe" / "paper_big.yaml"
    assert f"add {' '.join(shaw)}." in recipe.read_text().replace("\n# ", " ")


def test_byte_level_language_modelling_is_the_papers():
    """Section 4.4: Performer, 12 layers, 768, 12 heads, learning rate 1e-4, batch 128, length 1024."""
    built = of("charlm", "recipe=paper", "data=enwik8")
    training, data = built.training, built.data
    assert sizes(built.model)[:3] == (12, 768, 12) and built.model.norm == "pre"
    assert (training.batch_size, training.sequence_length) == (128, 1024)
    assert built.optimizer.learning_rate == 1e-4
    assert (data.valid_fraction, data.test_fraction, data.max_bytes) == (0.05, 0.05, None)
