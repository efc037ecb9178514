"""A model without a home in `transformers` is a folder of ours; bad input is told in one line."""

import sys

import pytest
import torch
from sacremoses import MosesDetokenizer
from safetensors import SafetensorError
from transformers import AutoTokenizer

import roformer
from roformer.config import position as encodings
from roformer.config.attention import PerformerAttention
from roformer.config.wmt import SearchConfig
from roformer.data.bpe import split_words
from roformer.errors import InputError
from roformer.inference import export as exporting
from roformer.inference.export import export
from scripts.export import main
from tests.data.parallel_texts import ENGLISH, trained
from tests.e2e.exported import (
    CHINESE,
    causal_run,
    encoder_config,
    masked_lm_run,
    translation_run,
)
from tests.e2e.test_export import GREEDY, averaged

ROTARY, SINES = encodings.Rotary(), encodings.Sinusoidal()
PERFORMER = {"attention": PerformerAttention(features=8), "attention_dropout": 0.0}
HOMELESS = {
    "shaw": (masked_lm_run, {"position": encodings.Shaw()}, "shaw positions"),
    "t5": (masked_lm_run, {"position": encodings.T5Bias()}, "t5 positions"),
    "alibi": (masked_lm_run, {"position": encodings.Alibi()}, "alibi positions"),
    "partial": (masked_lm_run, {"position": encodings.Rotary(fraction=0.5)}, "fraction=0.5"),
    "pre-norm": (masked_lm_run, {"norm": "pre"}, "norms stand before"),
    "causal alibi": (causal_run, {"position": encodings.Alibi()}, "alibi positions"),
    "causal t5": (causal_run, {"position": encodings.T5Bias()}, "t5 positions"),
    "post-norm": (causal_run, {"position": ROTARY, "norm": "post"}, "norms stand after"),
    "performer": (
        causal_run,
        {"position": ROTARY, "tokenizer": None, **PERFORMER},
        "performer attention",
    ),
    "words": (causal_run, {"position": ROTARY, "tokenizer": CHINESE}, "cuts Chinese into words"),
    "rotary": (translation_run, {"position": ROTARY}, "rotary positions"),
    "learned": (
        translation_run,
        {"position": encodings.Learned(max_positions=200)},
        "learned positions",
    ),
    "base": (translation_run, {"position": encodings.Sinusoidal(base=500.0)}, "of base 500"),
    "eps": (translation_run, {"position": SINES, "layer_norm_eps": 1e-6}, "layer_norm_eps"),
}


@pytest.mark.parametrize("name", HOMELESS)
def test_what_has_no_home_is_a_folder_of_ours(tmp_path, name):
    """It says why, holds no more than it needs, and opens as the run does."""
    write, changes, why = HOMELESS[name]
    folder = tmp_path / "pipeline" / "run"
    if write is translation_run:
        bpe = trained("bytes", merges=40)
        run = averaged(write(folder, bpe=bpe, norm="pre", **changes))
    elif write is masked_lm_run:
        run = write(folder, encoder_config(**changes))
    else:
        run = write(folder, **changes)
    written = export(run, tmp_path / "out")
    assert written.kind is None and why in written.notes[0]
    assert not list(written.folder.glob("**/optimizer.safetensors"))

    def says(folder):
        if write is masked_lm_run:
            with torch.no_grad():
                return roformer.load_model(folder).model(torch.arange(5, 25)[None]).tolist()
        if write is causal_run:
            generator = roformer.load_generator(folder)
            return list(generator.generate("the cat", GREEDY, max_tokens=9))
        return roformer.load_translator(folder).translate(ENGLISH[:2])

    assert says(written.folder) == says(run)
    card = (written.folder / "README.md").read_text()
    opener = {masked_lm_run: "load_model", causal_run: "load_generator"}
    assert why in card and f'roformer.{opener.get(write, "load_translator")}("FOLDER")' in card
    assert written.checkpoint == ("averaged" if write is translation_run else "step_00000008")


def test_moses_tokens_take_two_steps(tmp_path):
    """The tokenizer is exact on Moses tokens, and the card says how to make them."""
    bpe = trained("moses")
    written = export(translation_run(tmp_path / "run", SINES, bpe, norm="pre"), tmp_path / "out")
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


def test_a_length_penalty_that_generate_lacks_is_told(tmp_path):
    search = SearchConfig(length_penalty="gnmt")
    bpe = trained("bytes", merges=40)
    run = translation_run(tmp_path / "run", SINES, bpe, norm="post", search=search)
    assert any("no length penalty ((5 + L) / 6)^0.6" in n for n in export(run).notes)


# --- bad input -----------------------------------------------------------------------------------


def test_bad_input_is_told_in_one_line(tmp_path):
    run = masked_lm_run(tmp_path / "pretrain" / "run", encoder_config())
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "mine.txt").write_text("kept")
    cases = [
        ((tmp_path / "nothing",), "no such run"),
        ((tmp_path / "empty",), "not a run's folder, it has no checkpoints"),
        ((run / "checkpoints" / "last",), "is not a run's folder"),
        ((run, None, "averaged"), "no checkpoint averaged: choose one of best, last, step_0000"),
        ((run, tmp_path / "full"), f"{tmp_path / 'full'} is there already and not empty"),
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


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("model_card", OSError(28, "No space left on device")),
        ("save_tokenizer", SafetensorError("I/O error: No space left (os error 28)")),
    ],
    ids=["card", "weights"],
)
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, step, error):
    run = masked_lm_run(tmp_path / "pretrain" / "run", encoder_config())

    def full(*_, **__):
        raise error

    monkeypatch.setattr(exporting, step, full)
    with pytest.raises(OSError, match="No space left") as told:
        export(run)
    assert told.value.errno == 28
    assert list((tmp_path / "export").iterdir()) == []


def test_the_command_says_what_it_made_and_what_was_wrong(tmp_path, monkeypatch, capsys):
    """An empty folder is filled; a full one is refused."""
    run = masked_lm_run(tmp_path / "run", encoder_config(encodings.Alibi()))
    (tmp_path / "out").mkdir()
    arguments = ["export.py", str(run), "--output", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [*arguments, "--checkpoint", "step_00000008"])
    main()
    printed = capsys.readouterr().out
    assert f"{tmp_path / 'out'}: step_00000008 as a folder of roformer\n" in printed
    assert "transformers has no such model: no encoder there has alibi positions" in printed
    assert "`step_00000008`" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'out'} is there already")
