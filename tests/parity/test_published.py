"""A published BERT starts a training; ROFORMER_PUBLISHED_BERT is the folder of all-MiniLM-L6-v2."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from roformer.config.position import Rotary
from roformer.inference.start import load_start, open_start
from roformer.interop.hugging_face import identify
from roformer.models.encoder import MaskedLM

FOLDER = os.environ.get("ROFORMER_PUBLISHED_BERT")
DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TEXTS = ["A BERT that reads positions by rotation.", "and a short one"]
pytestmark = pytest.mark.skipif(FOLDER is None, reason="ROFORMER_PUBLISHED_BERT is not set")


def test_a_published_bert_gives_its_states_and_starts_a_roformer():
    assert identify(FOLDER) == (None, DIGEST)
    start = open_start(FOLDER)
    assert (start.model.layers, start.model.hidden_size, start.model.heads) == (6, 384, 12)
    inputs = AutoTokenizer.from_pretrained(FOLDER)(TEXTS, padding=True, return_tensors="pt")
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    own = [
        [start.tokenizer.cls_id, *start.tokenizer.encode(text), start.tokenizer.sep_id]
        for text in TEXTS
    ]
    assert [row[m.bool()].tolist() for row, m in zip(ids, mask, strict=True)] == own
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(FOLDER).eval()(**inputs).last_hidden_state
        ours = start.encoder()(ids, attention_mask=mask.bool())
    assert (ours - theirs)[mask.bool()].abs().max() < 1e-5

    model = MaskedLM(replace(start.model, position=Rotary()), start.vocab_size)
    taken, dropped, drawn = load_start(start, model)
    assert taken == (
        f"taken: 100 weights of {Path(FOLDER)} (bert, 6x384, learned positions replaced by rotary)"
    )
    assert "embeddings.position_embeddings.weight" in dropped and "encoder." not in drawn
