"""An exported run opens in `transformers` without our code and says what it says here."""

import json

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

import roformer
from roformer.config import position as encodings
from roformer.config.wmt import SearchConfig
from roformer.inference.export import export
from roformer.interop.equivalents import to_marian
from roformer.interop.layout import convert_state_layout
from roformer.interop.weights import from_transformers
from roformer.training.averaging import save_average
from tests.data.parallel_texts import ENGLISH, trained
from tests.e2e import exported
from tests.e2e.elsewhere import open_elsewhere
from tests.e2e.exported import CASED, CHINESE, NASTY, classifier_run, encoder_config, masked_lm_run

LABELS = ["zebra", "apple", "middle"]
"""Not in alphabetical order."""
HALF = encodings.Rotary(layout="half")
MASKED = {
    "rotary": ("roformer", encodings.Rotary(), {}),
    "half-split": ("roformer", HALF, {}),
    "another base": ("jina_embeddings_v3", encodings.Rotary(base=500.0), {}),
    "learned": ("bert", encodings.Learned(max_positions=300), {}),
    "sinusoidal": ("bert", encodings.Sinusoidal(), {}),
    "none": ("bert", encodings.NoPosition(), {}),
    "cased": ("roformer", encodings.Rotary(), {"tokenizer": CASED}),
    "words": ("roformer", encodings.Rotary(), {"tokenizer": CHINESE}),
    "words, learned": ("bert", encodings.Learned(max_positions=300), {"tokenizer": CHINESE}),
}
CLASSIFIERS = {
    "rotary, three classes": ("jina_embeddings_v3", encodings.Rotary(), LABELS, False),
    "half-split, pairs": ("jina_embeddings_v3", HALF, LABELS[:2], True),
    "rotary, regression": ("jina_embeddings_v3", encodings.Rotary(), None, True),
    "learned, pairs": ("bert", encodings.Learned(max_positions=24), LABELS, True),
    "learned, regression": ("bert", encodings.Learned(max_positions=64), None, False),
    "sinusoidal, three classes": ("bert", encodings.Sinusoidal(), LABELS, False),
}


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """Return name → (run, exported folder) of masked-language models."""
    folder = tmp_path_factory.mktemp("masked")
    made = {}
    for number, (name, (_, position, options)) in enumerate(MASKED.items()):
        run = masked_lm_run(
            folder / "pretrain" / f"run-{number}", encoder_config(position), **options
        )
        made[name] = run, export(run).folder
    return made


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory):
    """Return name → (run, exported folder) of classifiers."""
    folder = tmp_path_factory.mktemp("classifiers")
    made = {}
    for number, (name, (_, position, labels, pairs)) in enumerate(CLASSIFIERS.items()):
        run = classifier_run(
            folder / "glue" / f"run-{number}", encoder_config(position), labels, pairs=pairs
        )
        made[name] = run, export(run).folder
    return made


def texts_for(name):
    """Return the nasty texts, in pairs where the task wants pairs."""
    return list(zip(NASTY, NASTY[3:] + NASTY[:3], strict=True)) if CLASSIFIERS[name][3] else NASTY


def relative(ours, theirs):
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MASKED)
def test_masked_language_models_have_our_logits(masked, name):
    """Catches query and key out of order, the wrong rotary layout, a lost bias, another eps."""
    run, folder = masked[name]
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == MASKED[name][0] and "auto_map" not in config
    ours, theirs = roformer.load_model(run), AutoModelForMaskedLM.from_pretrained(folder).eval()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, config["vocab_size"], (3, 290), generator=generator)
    mask = torch.arange(290) < torch.tensor([290, 31, 4])[:, None]
    types = torch.randint(2, ids.shape, generator=generator)
    with torch.no_grad():
        expected = ours.model(ids, attention_mask=mask, token_type_ids=types)[mask]
        found = theirs(ids, attention_mask=mask.long(), token_type_ids=types).logits[mask]
    assert expected.std() > 0.3
    assert relative(found, expected) <= 1e-5
    assert config["max_position_embeddings"] >= 290


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_have_our_ids_and_logits(classifiers, name):
    """Pairs, truncation, accents and spelt-out special tokens, through their tokenizer alone."""
    run, folder = classifiers[name]
    kind, _, labels, pairs = CLASSIFIERS[name]
    ours, tokenizer = roformer.load_model(run), AutoTokenizer.from_pretrained(folder)
    theirs = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert theirs.config.model_type == kind
    texts = texts_for(name)
    inputs = ours.inputs(texts)
    expected = inputs[range(len(texts))]
    columns = list(zip(*texts, strict=True)) if pairs else [texts]
    batch = tokenizer(*map(list, columns), truncation=True, padding=True, return_tensors="pt")
    assert torch.equal(batch["input_ids"], expected["input_ids"])
    assert torch.equal(batch["token_type_ids"], expected["token_type_ids"])
    assert torch.equal(batch["attention_mask"].bool(), expected["attention_mask"])
    with torch.no_grad():
        logits = theirs(**batch).logits
    assert logits.std() > 0.1
    assert relative(logits, ours.outputs(inputs)) <= 1e-5
    assert theirs.config.problem_type == (
        "regression" if labels is None else "single_label_classification"
    )
    if labels is not None:
        assert [theirs.config.id2label[i] for i in range(len(labels))] == labels
        assert [theirs.config.label2id[label] for label in labels] == list(range(len(labels)))


@pytest.mark.parametrize("name", MASKED)
def test_token_ids_are_ours(masked, name):
    """A [MASK] in a text is the mask there, which fill-mask needs; all else is as here."""
    run, folder = masked[name]
    ours, theirs = roformer.load_model(run).tokenizer, AutoTokenizer.from_pretrained(folder)
    for text in NASTY:
        wanted = [ours.cls_id, *ours.encode(text), ours.sep_id]
        assert theirs(text, split_special_tokens=True)["input_ids"] == wanted, text
        if "[" not in text:
            assert theirs(text)["input_ids"] == wanted, text
    assert ours.mask_id in theirs("the [MASK] sat")["input_ids"]
    assert theirs.mask_token_id == ours.mask_id and theirs.pad_token_id == ours.pad_id


@pytest.mark.parametrize("name", [*MASKED, *CLASSIFIERS])
def test_weights_come_back_bit_for_bit(masked, classifiers, name):
    """Ours → folder → AutoModel → ours; a fixed table of positions is all that is added."""
    run, folder = (masked | classifiers)[name]
    model = AutoModelForMaskedLM if name in MASKED else AutoModelForSequenceClassification
    state = model.from_pretrained(folder).state_dict()
    expected = load_file(run / "checkpoints" / "last" / "model.safetensors")
    kind, position = (MASKED | CLASSIFIERS)[name][:2]
    back = from_transformers(state, kind)
    there = "half" if kind == "jina_embeddings_v3" else "interleaved"
    if isinstance(position, encodings.Rotary) and position.layout != there:
        config = encoder_config(position)
        back = convert_state_layout(
            back, config.heads, position.layout, rotary_dim=config.rotary_dim
        )
    assert back.keys() - expected.keys() <= {"encoder.position.table"}
    for key, tensor in expected.items():
        assert torch.equal(back[key], tensor), key


# --- without our code ----------------------------------------------------------------------------


@pytest.mark.slow
def test_pipelines_need_no_code_of_ours(masked, classifiers):
    """Top predictions, labels and scores are those of `load_model`, whatever the order of labels."""
    sentences = ["the [MASK] sat on the mat .", "the cat sat on the Café [MASK]"]
    masked = {name: masked[name] for name in ("rotary", "another base", "sinusoidal", "cased")}
    tasks = [("fill-mask", str(folder), sentences) for _, folder in masked.values()]
    tasks += [
        ("text-classification", str(folder), texts_for(name))
        for name, (_, folder) in classifiers.items()
    ]
    answers = open_elsewhere(tasks)
    for run, folder in masked.values():
        ours = roformer.load_model(run)
        tokenizer = ours.tokenizer
        for sentence, found in zip(sentences, answers[str(folder)], strict=True):
            before, after = map(tokenizer.encode, sentence.split("[MASK]"))
            ids = [tokenizer.cls_id, *before, tokenizer.mask_id, *after, tokenizer.sep_id]
            with torch.no_grad():
                logits = ours.model(torch.tensor([ids]))[0, len(before) + 1]
            best = logits.softmax(-1).topk(3)
            assert [each["token"] for each in found] == best.indices.tolist()
            assert [each["score"] for each in found] == pytest.approx(
                best.values.tolist(), rel=1e-4
            )
    for name, (run, folder) in classifiers.items():
        predictions = roformer.load_model(run).predict(texts_for(name))
        for text, wanted, found in zip(
            texts_for(name), predictions, answers[str(folder)], strict=True
        ):
            (found,) = found if isinstance(found, list) else [found]
            if text[1:] == ("",):  # their pipeline, not their tokenizer, takes it for no text
                continue
            assert found["score"] == pytest.approx(wanted.score, rel=1e-4, abs=1e-5)
            assert found["label"] == (wanted.label or "score")


# --- translation ---------------------------------------------------------------------------------

TRANSLATION = {"post": "marian", "pre": "pegasus"}
SEARCH = SearchConfig(beam=3, alpha=0.8, max_length_extra=20)


@pytest.fixture(scope="module")
def translations(tmp_path_factory):
    """Return norm → (run, exported folder) of sinusoidal translation models of bytes."""
    folder = tmp_path_factory.mktemp("translations")
    made = {}
    for norm in TRANSLATION:
        run = exported.translation_run(
            folder / "wmt" / norm,
            encodings.Sinusoidal(),
            trained("bytes", merges=40),
            norm=norm,
            search=SEARCH,
            updates=200,
        )
        save_average(sorted(run.glob("checkpoints/step_*")), run / "checkpoints" / "averaged")
        made[norm] = run, export(run).folder
    return made


@pytest.mark.parametrize("norm", TRANSLATION)
def test_translation_models_have_our_logits_and_weights(translations, norm):
    """Catches a final norm left out or not permuted, an unscaled embedding, sines out of place."""
    run, folder = translations[norm]
    ours = roformer.load_translator(run).model
    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    assert theirs.config.model_type == TRANSLATION[norm]
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randint(3, theirs.config.vocab_size, (2, 4, 60), generator=generator)
    mask = torch.arange(60) < torch.tensor([60, 9, 30, 1])[:, None]
    with torch.no_grad():
        expected = ours(source, target, attention_mask=mask)
        found = theirs(source, attention_mask=mask.long(), decoder_input_ids=target).logits
    assert expected.std() > 0.3
    assert relative(found, expected) <= 1e-5
    state = theirs.state_dict()
    assert all(torch.equal(state[name], t) for name, t in to_marian(ours.state_dict()).items())


@pytest.mark.parametrize("norm", TRANSLATION)
def test_generate_translates_as_we_do(translations, norm):
    """Beam and length penalty of the run's search, on translations that end by themselves."""
    run, folder = translations[norm]
    translator = roformer.load_translator(run)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    lines = ["abc", "fadec", "aa", "bcdefabc", "f", "deadbeef", "cafe", "bad", "dad ace", "facade"]
    ended = []
    for line, (best,) in zip(lines, translator.translate(lines), strict=True):
        batch = tokenizer(line, truncation=True, return_tensors="pt")
        limit = batch["input_ids"].shape[1] + SEARCH.max_length_extra
        found = model.generate(**batch, max_new_tokens=limit)[0].tolist()
        if len(found) < limit:
            ended.append(best.text)
            assert tokenizer.decode(found, skip_special_tokens=True) == best.text, line
    assert len(ended) >= 5 and len(set(ended)) >= 4


@pytest.mark.parametrize("norm", TRANSLATION)
def test_translation_token_ids_are_ours(translations, norm):
    """Bytes, spelt-out special tokens, the end, sources that are cut."""
    run, folder = translations[norm]
    translator, tokenizer = roformer.load_translator(run), AutoTokenizer.from_pretrained(folder)
    bpe = translator.tokenizer
    lines = [*NASTY, "</s> a <pad> <unk>", *ENGLISH]
    for line, ids in zip(lines, bpe.encode_batch(lines, bpe.source_language), strict=True):
        cut = [*ids[: translator.max_length], bpe.end_id]
        assert tokenizer(line, truncation=True)["input_ids"] == cut, line
        text = bpe.decode_batch([[*cut, bpe.pad_id]], bpe.target_language)[0]
        assert tokenizer.decode([*cut, bpe.pad_id], skip_special_tokens=True) == text


# --- the card ------------------------------------------------------------------------------------


def test_the_card_is_the_record(masked, classifiers, translations):
    """Its metrics, in the front matter and in the text, are those that summary.json has."""
    for name, (run, folder) in (masked | classifiers | translations).items():
        summary = json.loads((run / "summary.json").read_text())
        metrics = summary["metrics"]
        if name in TRANSLATION:  # the mean of the last checkpoints: what the test set says of it
            metrics = {"test/sacrebleu": metrics["test/sacrebleu"]}
        card = ModelCard.load(folder / "README.md")
        results = {each.metric_type: each.metric_value for each in card.data.eval_results}
        assert results == {key: value for key, value in metrics.items() if value is not None}
        for key, value in metrics.items():
            shown = "undefined" if value is None else json.dumps(value)
            assert f"| {key} | {shown} |" in card.text
        assert card.data.library_name == "transformers"
        for fact in ("fingerprint-of-the-data", "0123abc, changed", "python scripts/pretrain.py"):
            assert fact in card.text


def test_a_checkpoint_that_was_not_measured_says_so(tmp_path):
    run = masked_lm_run(tmp_path / "run", encoder_config())
    (run / "summary.json").unlink()
    (run / "metrics.jsonl").write_text('{"step": 4, "valid/mlm_loss": 9.0}\n')
    card = (export(run, tmp_path / "out").folder / "README.md").read_text()
    assert "Nothing was measured of `step_00000008`" in card and "9.0" not in card
