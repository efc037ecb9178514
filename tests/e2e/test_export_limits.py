"""What `transformers` lacks is told: a model without a home is a folder of ours, the rest a note."""

import pytest
import torch
from sacremoses import MosesDetokenizer
from transformers import AutoTokenizer

import roformer
from roformer.config import position as encodings
from roformer.config.wmt import SearchConfig
from roformer.data.bpe import split_words
from roformer.inference.export import export
from roformer.training.averaging import save_average
from tests.data.parallel_texts import ENGLISH, trained
from tests.e2e import exported
from tests.e2e.exported import encoder_config, masked_lm_run

HOMELESS = {
    "shaw": ({"position": encodings.Shaw()}, "shaw positions"),
    "t5": ({"position": encodings.T5Bias()}, "t5 positions"),
    "alibi": ({"position": encodings.Alibi()}, "alibi positions"),
    "partial rotary": ({"position": encodings.Rotary(fraction=0.5)}, "fraction=0.5"),
    "pre-norm": ({"norm": "pre"}, "norms stand before"),
}


@pytest.mark.parametrize("name", HOMELESS)
def test_what_has_no_home_is_a_folder_of_ours(tmp_path, name):
    """It says why, holds no more than it needs, and opens as the run does."""
    changes, why = HOMELESS[name]
    run = masked_lm_run(tmp_path / "pretrain" / "run", encoder_config(**changes))
    written = export(run, tmp_path / "out")
    assert written.kind is None and why in written.notes[0]
    assert why in (written.folder / "README.md").read_text()
    assert not list(written.folder.glob("**/optimizer.safetensors"))
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        expected = roformer.load_model(run).model(ids)
        assert torch.equal(roformer.load_model(written.folder).model(ids), expected)


@pytest.mark.parametrize(
    ("position", "changes", "why"),
    [
        (encodings.Rotary(), {}, "rotary positions"),
        (encodings.Learned(max_positions=200), {}, "learned positions"),
        (encodings.Sinusoidal(base=500.0), {}, "of base 500"),
        (encodings.Sinusoidal(), {"layer_norm_eps": 1e-6}, "layer_norm_eps"),
    ],
    ids=["rotary", "learned", "another base", "another eps"],
)
def test_a_translation_model_without_a_home(tmp_path, position, changes, why):
    bpe = trained("bytes", merges=40)
    run = exported.translation_run(tmp_path / "run", position, bpe, norm="pre", **changes)
    save_average(sorted(run.glob("checkpoints/step_*")), run / "checkpoints" / "averaged")
    written = export(run, tmp_path / "out")
    assert written.kind is None and why in written.notes[0] and written.checkpoint == "averaged"
    ours, copy = (roformer.load_translator(folder) for folder in (run, written.folder))
    assert list(copy.translate(ENGLISH[:2])) == list(ours.translate(ENGLISH[:2]))


def test_moses_tokens_take_two_steps(tmp_path):
    """The tokenizer is exact on Moses tokens, and the card says how to make them."""
    bpe = trained("moses")
    run = exported.translation_run(tmp_path / "run", encodings.Sinusoidal(), bpe, norm="pre")
    written = export(run, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(written.folder)
    lines = [*ENGLISH, "Don't   touch </s> well-known   <unk> &amp; it, café!", ""]
    for words, ids in zip(
        split_words(lines, "moses", "en"), bpe.encode_batch(lines, "en"), strict=True
    ):
        assert tokenizer(words)["input_ids"] == [*ids, bpe.end_id]
        detokenized = bpe.decode_batch([ids], "en")[0]
        text = tokenizer.decode([*ids, bpe.end_id], skip_special_tokens=True)
        assert MosesDetokenizer("en").detokenize(text.split(), unescape=False) == detokenized
    card = (written.folder / "README.md").read_text()
    assert "aggressive_dash_splits=True, escape=False" in card
    assert any("Moses tokens" in note for note in written.notes)


def test_a_length_penalty_that_generate_lacks_is_told(tmp_path):
    search = SearchConfig(length_penalty="gnmt")
    bpe = trained("bytes", merges=40)
    run = exported.translation_run(
        tmp_path / "run", encodings.Sinusoidal(), bpe, norm="post", search=search
    )
    assert any("no length penalty ((5 + L) / 6)^0.6" in n for n in export(run).notes)
