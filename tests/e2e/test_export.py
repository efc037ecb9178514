"""An exported run opens in `transformers` without our code and says what it says here."""

import json

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

import roformer
from roformer.config import position as encodings
from roformer.config.wmt import SearchConfig
from roformer.evaluation.sampling import Sampling
from roformer.inference.export import export
from roformer.training.averaging import save_average
from tests.data.parallel_texts import ENGLISH, trained
from tests.e2e import exported
from tests.e2e.elsewhere import open_elsewhere
from tests.e2e.exported import CASED, CHINESE, LENGTH, NASTY, encoder_config
from tests.parity.test_transformers import relative

GREEDY = Sampling(temperature=0.0)
SEARCH = SearchConfig(beam=3, alpha=0.8, max_length_extra=20)
LABELS = ["zebra", "apple", "middle"]
"""Not in alphabetical order."""
ROTARY, HALF = encodings.Rotary(), encodings.Rotary(layout="half")
LEARNED, NONE = encodings.Learned(max_positions=300), encodings.NoPosition()
MASKED = {
    "rotary": ("roformer", ROTARY, {}),
    "half-split": ("roformer", HALF, {}),
    "another base": ("jina_embeddings_v3", encodings.Rotary(base=500.0), {}),
    "learned": ("bert", LEARNED, {}),
    "sinusoidal": ("bert", encodings.Sinusoidal(), {}),
    "none": ("bert", NONE, {}),
    "cased": ("roformer", ROTARY, {"tokenizer": CASED}),
    "words": ("roformer", ROTARY, {"tokenizer": CHINESE}),
    "words, learned": ("bert", LEARNED, {"tokenizer": CHINESE}),
}
CLASSIFIERS = {
    "rotary, three classes": ("jina_embeddings_v3", ROTARY, LABELS, False),
    "half-split, pairs": ("jina_embeddings_v3", HALF, LABELS[:2], True),
    "rotary, regression": ("jina_embeddings_v3", ROTARY, None, True),
    "learned, pairs": ("bert", encodings.Learned(max_positions=24), LABELS, True),
    "learned, regression": ("bert", encodings.Learned(max_positions=64), None, False),
    "sinusoidal, three classes": ("bert", encodings.Sinusoidal(), LABELS, False),
}
CAUSAL = {
    "causal": ("gpt_neox", {"position": ROTARY}),
    "half": ("gpt_neox", {"position": HALF}),
    "partial": ("gpt_neox", {"position": encodings.Rotary(fraction=0.5), "tokenizer": CASED}),
    "base": ("gpt_neox", {"position": encodings.Rotary(base=500.0), "heads": 4}),
    "causal, learned": ("gpt2", {"position": encodings.Learned(max_positions=64)}),
    "causal, sinusoidal": ("gpt2", {"position": encodings.Sinusoidal(scale=0.7)}),
    "causal, none": ("gpt2", {"position": NONE}),
    "bytes": ("gpt_neox", {"position": ROTARY, "tokenizer": None}),
}
TRANSLATION = {"post": ("marian",), "pre": ("pegasus",)}


def averaged(run):
    save_average(sorted(run.glob("checkpoints/step_*")), run / "checkpoints" / "averaged")
    return run


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return name → (run, exported folder), made when it is asked for."""
    made = {}

    def model(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("runs") / "pipeline" / "run"
            if name in MASKED:
                kind, position, options = MASKED[name]
                run = exported.masked_lm_run(folder, encoder_config(position), **options)
            elif name in CLASSIFIERS:
                kind, position, labels, pairs = CLASSIFIERS[name]
                run = exported.classifier_run(folder, encoder_config(position), labels, pairs=pairs)
            elif name in CAUSAL:
                kind, settings = CAUSAL[name]
                run = exported.causal_run(folder, **settings)
            else:
                (kind,), position, bpe = (
                    TRANSLATION[name],
                    encodings.Sinusoidal(),
                    trained("bytes", merges=40),
                )
                search = {"norm": name, "search": SEARCH, "updates": 200}
                run = averaged(exported.translation_run(folder, position, bpe, **search))
            written = export(run)
            assert written.kind == kind
            assert written.checkpoint == ("averaged" if name in TRANSLATION else "step_00000008")
            made[name] = run, written.folder
        return made[name]

    return model


def texts_for(name):
    """Return the nasty texts, in pairs where the task wants pairs."""
    return list(zip(NASTY, NASTY[3:] + NASTY[:3], strict=True)) if CLASSIFIERS[name][3] else NASTY


def random_ids(size, *shape):
    return torch.randint(5, size, shape, generator=torch.Generator().manual_seed(0))


# --- logits, ids and texts -----------------------------------------------------------------------


@pytest.mark.parametrize("name", MASKED)
def test_masked_language_models_have_our_logits_and_ids(models, name):
    """Catches query and key out of order, the wrong rotary layout, a lost bias, another eps.

    A [MASK] in a text is the mask there, which fill-mask needs; all else is as here.
    """
    run, folder = models(name)
    config = json.loads((folder / "config.json").read_text())
    assert "auto_map" not in config and config["max_position_embeddings"] >= 290
    ours, model = roformer.load_model(run), AutoModelForMaskedLM.from_pretrained(folder).eval()
    ids = random_ids(config["vocab_size"], 3, 290)
    mask = torch.arange(290) < torch.tensor([290, 31, 4])[:, None]
    with torch.no_grad():
        expected = ours.model(ids, attention_mask=mask, token_type_ids=ids % 2)[mask]
        found = model(ids, attention_mask=mask.long(), token_type_ids=ids % 2).logits[mask]
    assert expected.std() > 0.3
    assert relative(found, expected) <= 1e-5

    words, theirs = ours.tokenizer, AutoTokenizer.from_pretrained(folder)
    for text in NASTY:
        wanted = [words.cls_id, *words.encode(text), words.sep_id]
        assert theirs(text, split_special_tokens=True)["input_ids"] == wanted, text
        if "[" not in text:
            assert theirs(text)["input_ids"] == wanted, text
    assert words.mask_id in theirs("the [MASK] sat")["input_ids"]
    assert theirs.mask_token_id == words.mask_id and theirs.pad_token_id == words.pad_id


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_have_our_ids_and_logits(models, name):
    """Pairs, truncation, accents and spelt-out special tokens, through their tokenizer alone."""
    run, folder = models(name)
    _, _, labels, pairs = CLASSIFIERS[name]
    ours, tokenizer = roformer.load_model(run), AutoTokenizer.from_pretrained(folder)
    theirs = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    texts = texts_for(name)
    inputs = ours.inputs(texts)
    columns = list(zip(*texts, strict=True)) if pairs else [texts]
    batch = tokenizer(*map(list, columns), truncation=True, padding=True, return_tensors="pt")
    for key, expected in inputs[range(len(texts))].items():
        assert torch.equal(batch[key].to(expected.dtype), expected)
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


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_models_have_our_logits_ids_and_greedy_texts(models, name):
    """Through their cache, which counts positions by itself, and their decoder.

    Catches another layout, unpermuted heads, an output that is not tied, another GELU.
    """
    run, folder = models(name)
    generator = roformer.load_generator(run)
    ours, codec = generator.model, generator.codec
    theirs, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values()), loading
    ids = random_ids(ours.tokens.num_embeddings, 3, LENGTH)
    with torch.no_grad():
        wanted, found = ours(ids), theirs(input_ids=ids).logits
    assert wanted.std() > 0.3
    assert relative(found, wanted) <= 1e-5

    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in NASTY:
        if text or name != "bytes":  # of nothing our bytes make a line end, to begin with
            assert tokenizer(text)["input_ids"] == codec.encode(text), text
    inputs = tokenizer("the cat sat", return_tensors="pt")
    assert list(inputs) == ["input_ids", "attention_mask"]
    ids = theirs.generate(**inputs, max_new_tokens=20, do_sample=False)[0]
    text = tokenizer.decode(ids, skip_special_tokens=True).removeprefix(" ")
    assert text == "the cat sat" + "".join(generator.generate("the cat sat", GREEDY, max_tokens=20))


@pytest.mark.parametrize("norm", TRANSLATION)
def test_translation_models_have_our_logits_ids_and_texts(models, norm):
    """Beam and length penalty of the run's search, on translations that end by themselves.

    Catches a final norm left out or not permuted, an unscaled embedding, sines out of place.
    """
    run, folder = models(norm)
    translator, tokenizer = roformer.load_translator(run), AutoTokenizer.from_pretrained(folder)
    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    source, target = random_ids(theirs.config.vocab_size, 2, 4, 60)
    mask = torch.arange(60) < torch.tensor([60, 9, 30, 1])[:, None]
    with torch.no_grad():
        expected = translator.model.eval()(source, target, attention_mask=mask)
        found = theirs(source, attention_mask=mask.long(), decoder_input_ids=target).logits
    assert expected.std() > 0.3
    assert relative(found, expected) <= 1e-5

    bpe = translator.tokenizer
    lines = [*NASTY, "</s> a <pad> <unk>", *ENGLISH]  # cut sources and spelt-out special tokens too
    for line, ids in zip(lines, bpe.encode_batch(lines, bpe.source_language), strict=True):
        cut = [*ids[: translator.max_length], bpe.end_id]
        assert tokenizer(line, truncation=True)["input_ids"] == cut, line
        text = bpe.decode_batch([[*cut, bpe.pad_id]], bpe.target_language)[0]
        assert tokenizer.decode([*cut, bpe.pad_id], skip_special_tokens=True) == text

    lines = ["abc", "fadec", "aa", "bcdefabc", "f", "deadbeef", "cafe", "bad", "dad ace", "facade"]
    ended = []
    for line, (best,) in zip(lines, translator.translate(lines), strict=True):
        batch = tokenizer(line, truncation=True, return_tensors="pt")
        limit = batch["input_ids"].shape[1] + SEARCH.max_length_extra
        found = theirs.generate(**batch, max_new_tokens=limit)[0].tolist()
        if len(found) < limit:
            ended.append(best.text)
            assert tokenizer.decode(found, skip_special_tokens=True) == best.text, line
    assert len(ended) >= 5 and len(set(ended)) >= 4


# --- without our code ----------------------------------------------------------------------------


@pytest.mark.slow
def test_pipelines_need_no_code_of_ours(models):
    """Top predictions, labels, scores and continuations are ours, whatever the order of labels."""
    sentences = ["the [MASK] sat on the mat .", "the cat sat on the Café [MASK]"]
    masked = {name: models(name) for name in ("rotary", "another base", "sinusoidal", "cased")}
    causal = {name: models(name) for name in ("causal", "causal, learned", "bytes")}
    classifiers = {name: models(name) for name in CLASSIFIERS}
    tasks = [("fill-mask", str(folder), sentences) for _, folder in masked.values()]
    tasks += [("text-generation", str(folder), ["the cat"]) for _, folder in causal.values()]
    tasks += [
        ("text-classification", str(folder), texts_for(name))
        for name, (_, folder) in classifiers.items()
    ]
    answers = open_elsewhere(tasks)
    for run, folder in masked.values():
        ours = roformer.load_model(run)
        for sentence, found in zip(sentences, answers[str(folder)], strict=True):
            (best,) = ours.fill_mask(sentence, top=3)
            tokens = [ours.tokenizer.vocabulary[each["token"]] for each in found]
            assert tokens == [filling.token for filling in best]
            scores = [each["score"] for each in found]
            assert scores == pytest.approx([filling.probability for filling in best], rel=1e-4)
    for run, folder in causal.values():
        ((answer,),) = answers[str(folder)]
        continuation = roformer.load_generator(run).generate("the cat", GREEDY, max_tokens=9)
        assert answer["generated_text"] == "the cat" + "".join(continuation)
    for name, (run, folder) in classifiers.items():
        texts = texts_for(name)
        predictions = roformer.load_model(run).predict(texts)
        for text, wanted, found in zip(texts, predictions, answers[str(folder)], strict=True):
            (found,) = found if isinstance(found, list) else [found]
            if text[1:] == ("",):  # their pipeline, not their tokenizer, takes it for no text
                continue
            assert found["score"] == pytest.approx(wanted.score, rel=1e-4, abs=1e-5)
            assert found["label"] == (wanted.label or "score")


# --- the card ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rotary", "learned, pairs", "causal", "bytes", "post"])
def test_the_card_is_the_record(models, name):
    """Its metrics, in the front matter and in the text, are those that summary.json has."""
    run, folder = models(name)
    metrics = json.loads((run / "summary.json").read_text())["metrics"]
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
    if name in CAUSAL:
        assert card.data.pipeline_tag == "text-generation"
        assert 'pipeline("text-generation"' in card.text


def test_a_checkpoint_that_was_not_measured_says_so(tmp_path):
    run = exported.masked_lm_run(tmp_path / "run", encoder_config())
    (run / "summary.json").unlink()
    (run / "metrics.jsonl").write_text('{"step": 4, "valid/mlm_loss": 9.0}\n')
    card = (export(run, tmp_path / "out").folder / "README.md").read_text()
    assert "Nothing was measured of `step_00000008`" in card and "9.0" not in card
