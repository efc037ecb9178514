"""An exported run opens in `transformers` without our code and says what it says here, or in ours."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from sacremoses import MosesDetokenizer
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

import roformer
from roformer.config.attention import PerformerAttention
from roformer.config.build import plain
from roformer.config.position import (
    Alibi,
    Learned,
    LinearScaling,
    NoPosition,
    Rotary,
    Shaw,
    Sinusoidal,
)
from roformer.config.wmt import SearchConfig
from roformer.data.bpe import split_words
from roformer.data.tokenizers import ByteVocabulary
from roformer.errors import InputError
from roformer.evaluation.sampling import Sampling
from roformer.inference import export as exporting
from roformer.inference.export import export
from roformer.training.averaging import save_average
from scripts.export import main
from tests.data.parallel_texts import ENGLISH, trained
from tests.trained import CASED, CHINESE, relative, run_of, stored

GREEDY = Sampling(temperature=0.0)
SEARCH = SearchConfig(beam=3, alpha=0.8, max_length_extra=20)
NASTY = [
    "The cat sat on the mat.",
    "CAFÉ café Cafe\u0301 ÀÉÎõü",
    "the 中文 cat中sat 今天天气非常好。ＣＡＴ",
    "cat 🐈 on 👩‍👩‍👧 mat!",
    "the\x00 cat\ufffd\u200b sat\u00a0on\tthe\r\nmat\u2028.",
    "",
    "   ",
    "a" * 101,
    "the cat sat on the mat . " * 40,
    "the [MASK] sat [SEP] [CLS] [PAD] [UNK] [mask]",
    "don't ##e [ ] l'été ПРИВЕТ 12345 x@y",
]
LABELS = {"labels": ["zebra", "apple", "middle"]}
PAIRS = {"labels": ["zebra", "apple"], "texts": ["a", "b"]}
REGRESSION = {"labels": None, "texts": ["a", "b"]}
LEARNED, BYTES = Learned(max_positions=300), ByteVocabulary()
MODELS = {
    "mlm": {
        "rotary": ("roformer", {}),
        "sinusoidal": ("bert", {"position": Sinusoidal()}),
        "another base": (
            "jina_embeddings_v3",
            {"position": Rotary(base=500.0), "tokenizer": CASED},
        ),
        "part of the heads": ("jina_embeddings_v3", {"position": Rotary(fraction=0.5)}),
        "part, half-split": (
            "jina_embeddings_v3",
            {"position": Rotary(layout="half", fraction=0.25)},
        ),
        "words": ("roformer", {"tokenizer": CHINESE}),
        "pairs of segments": ("bert", {"position": LEARNED, "described": {"objective": "mlm_nsp"}}),
        "rotary, pairs of segments": ("roformer", {"described": {"objective": "mlm_sop"}}),
        "words, learned": ("bert", {"position": LEARNED, "tokenizer": CHINESE}),
    },
    "classifier": {
        "three classes": ("jina_embeddings_v3", {"described": LABELS}),
        "part of the heads, classes": (
            "jina_embeddings_v3",
            {"position": Rotary(fraction=0.5), "described": LABELS},
        ),
        "pairs": ("bert", {"position": Learned(max_positions=24), "described": PAIRS}),
        "regression": ("bert", {"position": NoPosition(), "described": REGRESSION}),
    },
    "causal": {
        "causal": ("gpt_neox", {}),
        "cased": ("gpt2", {"position": Learned(max_positions=64), "tokenizer": CASED}),
        "bytes": ("gpt_neox", {"tokenizer": BYTES}),
        "partial": ("gpt_neox", {"position": Rotary(base=500.0, fraction=0.5)}),
        "sinusoidal bytes": ("gpt2", {"position": Sinusoidal(), "tokenizer": BYTES}),
    },
    "translation": {
        "post": ("marian", {"norm": "post", "position": Sinusoidal()}),
        "pre": ("pegasus", {"norm": "pre", "position": Sinusoidal()}),
    },
}
"""Kind → name → `model_type` of the equivalent, and options of ours."""


def averaged(run):
    save_average(sorted(run.glob("checkpoints/step_*")), run / "checkpoints" / "averaged")
    return run


def taught_to_end(made, steps=150):
    """Teach an encoder-decoder to write about as many of a few letters as it reads, and to end."""
    model, bpe = made.build(), made.tokenizer
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    letters = torch.tensor(bpe.encode_batch(list("abcdef"), bpe.source_language)).flatten()
    end = torch.full((16, 1), bpe.end_id)
    for _ in range(steps):
        source = letters[torch.randint(len(letters), (16, int(torch.randint(2, 10, ()))))]
        wanted = torch.cat([source, end], 1)
        logits = model(wanted, torch.cat([end, source], 1))
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    made.weights.update({name: t.detach() for name, t in model.state_dict().items()})
    return made


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return name → (run, exported folder), made when it is asked for."""
    made = {}

    def model(name):
        if name in made:
            return made[name]
        folder = tmp_path_factory.mktemp("runs") / "pipeline" / "run"
        own = next(kind for kind, names in MODELS.items() if name in names)
        kind, options = MODELS[own][name]
        if own == "translation":
            bpe, described = trained("bytes", merges=40), {"search": plain(SEARCH)}
            untaught = stored(own, tokenizer=bpe, described=described, **options)
            run = averaged(run_of(folder, taught_to_end(untaught), steps=(4, 8)))
        else:
            run = run_of(folder, stored(own, **options))
        written = export(run)
        assert written.kind == kind
        assert written.checkpoint == ("averaged" if own == "translation" else "step_00000008")
        made[name] = run, written.folder
        return made[name]

    return model


def random_ids(size, *shape):
    return torch.randint(5, size, shape, generator=torch.Generator().manual_seed(0))


# --- logits, ids and texts, there and opened here again ------------------------------------------


@pytest.mark.parametrize("name", MODELS["mlm"])
@torch.no_grad()
def test_masked_language_models_have_our_logits_and_ids(models, name):
    """A [MASK] in a text is the mask there, which fill-mask needs; all else is as here."""
    run, folder = models(name)
    config = json.loads((folder / "config.json").read_text())
    assert "auto_map" not in config and config["max_position_embeddings"] >= 290
    ours, model = roformer.load_model(run), AutoModelForMaskedLM.from_pretrained(folder).eval()
    ids = random_ids(config["vocab_size"], 3, 290)
    mask = torch.arange(290) < torch.tensor([290, 31, 4])[:, None]
    expected = ours.model(ids, attention_mask=mask, token_type_ids=ids % 2)[mask]
    found = model(ids, attention_mask=mask.long(), token_type_ids=ids % 2).logits[mask]
    assert relative(found, expected) <= 1e-5
    again = roformer.load_model(folder)
    assert relative(again.model(ids), ours.model(ids)) <= 1e-5
    assert again.tokenizer.fingerprint == ours.tokenizer.fingerprint

    words, theirs = ours.tokenizer, AutoTokenizer.from_pretrained(folder)
    for text in NASTY:
        wanted = [words.cls_id, *words.encode(text), words.sep_id]
        assert theirs(text, split_special_tokens=True)["input_ids"] == wanted, text
        if "[" not in text:
            assert theirs(text)["input_ids"] == wanted, text
    assert words.mask_id in theirs("the [MASK] sat")["input_ids"]
    assert theirs.mask_token_id == words.mask_id and theirs.pad_token_id == words.pad_id


def test_the_head_for_pairs_of_segments_goes_where_there_is_one(models):
    folder = models("pairs of segments")[1]
    card = (folder / "README.md").read_text()
    assert "Masked-language model with next-sentence prediction:" in card
    assert roformer.load_model(folder).model.relation is not None
    card = (models("rotary, pairs of segments")[1] / "README.md").read_text()
    assert "roformer has no head for pairs of segments, so the run's is excluded." in card


@pytest.mark.parametrize("name", MODELS["classifier"])
@torch.no_grad()
def test_classifiers_have_our_ids_and_logits(models, name):
    """Pairs, truncation, accents and spelt-out special tokens, through only their tokenizer."""
    run, folder = models(name)
    ours, tokenizer = roformer.load_model(run), AutoTokenizer.from_pretrained(folder)
    theirs = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    columns = [NASTY, NASTY[3:] + NASTY[:3]][: ours.texts]
    texts = NASTY if ours.texts == 1 else list(zip(*columns, strict=True))
    inputs = ours.inputs(texts)
    batch = tokenizer(*columns, truncation=True, padding=True, return_tensors="pt")
    for key, expected in inputs[range(len(texts))].items():
        assert torch.equal(batch[key].to(expected.dtype), expected)
    again, logits = roformer.load_model(folder), ours.outputs(inputs)
    assert relative(theirs(**batch).logits, logits) <= 1e-5
    assert relative(again.outputs(inputs), logits) <= 1e-5 and again.labels == ours.labels
    kind = "single_label_classification" if ours.labels else "regression"
    assert theirs.config.problem_type == kind
    for number, label in enumerate(ours.labels or []):
        assert theirs.config.id2label[number] == label
        assert theirs.config.label2id[label] == number


@pytest.mark.parametrize("name", MODELS["causal"])
@torch.no_grad()
def test_causal_models_have_our_logits_ids_and_greedy_texts(models, name):
    """Through their cache, which counts positions by itself, and their decoder."""
    run, folder = models(name)
    generator, again = roformer.load_generator(run), roformer.load_generator(folder)
    ours, codec = generator.model, generator.codec
    theirs, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values()), loading
    ids = random_ids(ours.tokens.num_embeddings, 3, 40)
    assert relative(theirs(input_ids=ids).logits, ours(ids)) <= 1e-5
    assert relative(again.model(ids), ours(ids)) <= 1e-5  # the layouts add in another order

    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in NASTY:
        assert again.codec.encode(text) == codec.encode(text)
        if text or "bytes" not in name:  # of nothing our bytes make a line end, to begin with
            assert tokenizer(text)["input_ids"] == codec.encode(text), text
    several = tokenizer.pad_token is not None  # bytes have none
    # Padded on the left, where a text does not go on.
    prompts = ["the cat sat", "the mat"] if several else ["the cat sat"]
    inputs = tokenizer(prompts, padding=several, return_tensors="pt")
    assert list(inputs) == ["input_ids", "attention_mask"]
    outputs = theirs.generate(**inputs, max_new_tokens=20, do_sample=False)
    for prompt, ids in zip(prompts, outputs, strict=True):
        text = tokenizer.decode(ids, skip_special_tokens=True).removeprefix(" ")
        assert text == prompt + "".join(generator.generate(prompt, GREEDY, max_tokens=20))


@pytest.mark.parametrize("name", MODELS["translation"])
def test_translation_models_have_our_ids_and_texts(models, name):
    """Beam and length penalty of the run's search, on translations that end by themselves."""
    run, folder = models(name)
    translator, tokenizer = roformer.load_translator(run), AutoTokenizer.from_pretrained(folder)
    theirs, bpe = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), translator.tokenizer
    lines = [*NASTY, "</s> a <pad> <unk>", *ENGLISH]  # cut sources and spelt-out special tokens too
    for line, ids in zip(lines, bpe.encode_batch(lines, bpe.source_language), strict=True):
        cut = [*ids[: translator.max_length], bpe.end_id]
        assert tokenizer(line, truncation=True)["input_ids"] == cut, line
        text = bpe.decode_batch([[*cut, bpe.pad_id]], bpe.target_language)[0]
        assert tokenizer.decode([*cut, bpe.pad_id], skip_special_tokens=True) == text

    lines = ["abc", "fadec", "aa", "bcdefabc", "f", "deadbeef", "cafe", "bad", "dad ace", "facade"]
    ended, again = [], roformer.load_translator(folder).translate(lines)
    for line, (best,), (same,) in zip(lines, translator.translate(lines), again, strict=True):
        assert same.text == best.text and same.score == pytest.approx(best.score, abs=1e-4)
        batch = tokenizer(line, truncation=True, return_tensors="pt")
        limit = batch["input_ids"].shape[1] + SEARCH.max_length_extra
        found = theirs.generate(**batch, max_new_tokens=limit)[0].tolist()
        if len(found) < limit:
            ended.append(best.text)
            assert tokenizer.decode(found, skip_special_tokens=True) == best.text, line
    assert len(ended) >= 5 and len(set(ended)) >= 4


def test_an_export_that_is_damaged_is_one_line(models, tmp_path):
    copy = shutil.copytree(models("causal")[1], tmp_path / "copy")
    words, description = copy / "tokenizer.json", copy / "roformer.json"
    for damage, message in (
        (
            lambda: words.write_text(words.read_text().replace('"mat"', '"mut"')),
            "not the tokenizer that the model was trained with",
        ),
        (lambda: description.write_text("{"), "is damaged or incomplete"),
        (lambda: description.unlink(), "choose one of type bert or roformer, a run, or"),
    ):
        damage()
        with pytest.raises(InputError, match=message):
            roformer.load_generator(copy)


# --- the card ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rotary", "pairs", "bytes", "post"])
def test_the_card_is_the_record(models, name):
    """Its table of metrics is tested on real runs, in tests/e2e/test_guides.py."""
    folder = models(name)[1]
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "transformers"
    for fact in ("fingerprint-of-the-data", "0123abc, changed", "python scripts/pretrain.py"):
        assert fact in card.text
    if name == "bytes":
        assert card.data.pipeline_tag == "text-generation"
        assert 'pipeline("text-generation"' in card.text


def test_a_run_that_has_not_ended_has_no_results(tmp_path):
    run = run_of(tmp_path / "run")
    (run / "summary.json").unlink()
    card = (export(run, tmp_path / "out").folder / "README.md").read_text()
    assert "The run has not ended" in card


def test_moses_tokens_take_two_steps_and_a_length_penalty_that_generate_lacks_is_told(tmp_path):
    """The tokenizer is exact on Moses tokens, and the card says how to make them."""
    bpe, search = trained("moses"), plain(SearchConfig(length_penalty="gnmt"))
    model = stored("translation", Sinusoidal(), tokenizer=bpe, described={"search": search})
    written = export(run_of(tmp_path / "run", model), tmp_path / "out")
    card = (written.folder / "README.md").read_text()
    assert '\nlanguage: ["en", "de"]\n' in card  # without quotes Norwegian, no, would be false
    tokenizer = AutoTokenizer.from_pretrained(written.folder)
    lines = [*ENGLISH, "Don't   touch </s> well-known   <unk> &amp; it, café!", ""]
    for words, ids in zip(
        split_words(lines, "moses", "en"), bpe.encode_batch(lines, "en"), strict=True
    ):
        assert tokenizer(words)["input_ids"] == [*ids, bpe.end_id]
        text = tokenizer.decode([*ids, bpe.end_id], skip_special_tokens=True)
        detokenized = MosesDetokenizer("en").detokenize(text.split(), unescape=False)
        assert detokenized == bpe.decode_batch([ids], "en")[0]
    card = (written.folder / "README.md").read_text()
    assert "aggressive_dash_splits=True, escape=False" in card
    assert any("Moses tokens" in note for note in written.notes)
    assert any("no length penalty ((5 + L) / 6)^0.6" in note for note in written.notes)


# --- what transformers has not -------------------------------------------------------------------

PERFORMER = {"attention": PerformerAttention(features=8), "attention_dropout": 0.0}
HOMELESS = [
    ("mlm", {"position": Shaw()}, "shaw positions"),
    ("mlm", {"position": Rotary(absolute="learned")}, "rotary+learned positions"),
    ("mlm", {"position": Rotary(scaling=LinearScaling(factor=2.0))}, "rotate otherwise"),
    ("mlm", {"position": Rotary(fraction=0.125, base=1e6)}, "too large for fp32"),
    ("mlm", {"position": Rotary(fraction=0.5, rotate_values=True)}, "rotates values"),
    ("mlm", {"norm": "pre"}, "norms are before"),
    ("causal", {"norm": "post"}, "norms are after"),
    ("causal", {"tokenizer": BYTES, **PERFORMER}, "performer attention"),
    ("causal", {"tokenizer": CHINESE}, "cuts Chinese into words"),
    ("translation", {"position": Rotary()}, "rotary positions"),
    ("translation", {"position": Sinusoidal(base=500.0)}, "base=500"),
    ("translation", {"position": Sinusoidal(), "layer_norm_eps": 1e-6}, "layer_norm_eps"),
]


@pytest.mark.parametrize(("kind", "options", "why"), HOMELESS, ids=[why for *_, why in HOMELESS])
def test_what_has_no_home_is_a_folder_of_ours(tmp_path, kind, options, why):
    """It says why, holds no more than it needs, and opens as the run does."""
    if kind == "translation":
        options = {"tokenizer": trained("bytes", merges=40), **options}
    run = run_of(tmp_path / "pipeline" / "run", stored(kind, **options), steps=(4, 8))
    if kind == "translation":
        averaged(run)
    written = export(run, tmp_path / "out")
    assert written.kind is None and why in written.notes[0]
    assert not list(written.folder.glob("**/optimizer.safetensors"))
    opener = {"mlm": "load_model", "causal": "load_generator", "translation": "load_translator"}
    ours, theirs = (
        getattr(roformer, opener[kind])(path).model.state_dict() for path in (run, written.folder)
    )
    assert all(torch.equal(theirs[name], tensor) for name, tensor in ours.items())
    card = (written.folder / "README.md").read_text()
    assert why in card and f'roformer.{opener[kind]}("FOLDER")' in card
    assert written.checkpoint == ("averaged" if kind == "translation" else "step_00000008")


@pytest.mark.parametrize("kind", ["mlm", "classifier"])
def test_a_saved_model_is_exported_without_records(tmp_path, monkeypatch, kind):
    saved = run_of(tmp_path / "pipeline" / "run", stored(kind))
    roformer.load_model(saved).save(tmp_path / "saved")
    monkeypatch.chdir(tmp_path)
    written = export(tmp_path / "saved")
    assert written.folder == Path("runs/export/saved") and written.kind is not None
    assert not (written.folder / "README.md").exists()
    ids = torch.tensor([[2, 7, 9, 3]])
    ours, theirs = (roformer.load_model(path).model(ids) for path in (saved, written.folder))
    torch.testing.assert_close(theirs, ours)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* is skipped")
def test_bad_input_is_told_in_one_line(tmp_path):
    run = run_of(tmp_path / "pretrain" / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("kept")
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "summary.json").write_text("{}")
    cases = [
        ((tmp_path / "nothing",), "nothing: no such run or checkpoint"),
        (
            (tmp_path / "cell",),
            "cell has no weights: fine-tuning keeps them only of each task's best",
        ),
        ((run / "checkpoints" / "last",), "is not a whole run"),
        ((run, None, "averaged"), "no checkpoint averaged: choose one of best, last, step_0000"),
        ((run, tmp_path / "full"), f"{tmp_path / 'full'} exists already and is not empty"),
        ((run_of(tmp_path / "scm", stored("scorer")),), "scores pairs of documents"),
        ((run,), "no complete checkpoint"),
    ]
    for arguments, message in cases:
        if message == "no complete checkpoint":
            (run / "checkpoints" / "step_00000008" / "model.safetensors").write_bytes(b"cut")
        with pytest.raises(InputError) as error:
            export(*arguments)
        assert "\n" not in str(error.value) and message in str(error.value)
    assert (tmp_path / "full" / "mine.txt").read_text() == "kept"
    assert not (tmp_path / "export").exists()


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    """safetensors does not raise the system's error."""
    run = run_of(tmp_path / "pretrain" / "run")

    def full(*_, **__):
        raise SafetensorError("I/O error: No space left (os error 28)")

    monkeypatch.setattr(exporting, "save_tokenizer", full)
    with pytest.raises(OSError, match="No space left") as told:
        export(run)
    assert told.value.errno == 28
    assert list((tmp_path / "export").iterdir()) == []


def test_the_command_says_what_it_made_and_what_was_wrong(tmp_path, monkeypatch, capsys):
    """An empty folder is filled; a full one raises an error."""
    run = run_of(tmp_path / "run", stored(position=Alibi()))
    (tmp_path / "out").mkdir()
    arguments = ["export.py", str(run), "--output", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [*arguments, "--checkpoint", "step_00000008"])
    main()
    printed = capsys.readouterr().out
    assert f"{tmp_path / 'out'}: step_00000008 as a folder of roformer\n" in printed
    assert "transformers has no such model: bert and roformer have no alibi positions" in printed
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'out'} exists already")
