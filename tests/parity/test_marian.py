"""Our encoder-decoder against transformers' Marian model with the same weights."""

import pytest
import torch
from torch.nn import functional
from transformers import MarianConfig, MarianMTModel

from roformer.config.schema import OptimizerConfig
from roformer.errors import InputError
from roformer.interop.marian import from_marian, seq2seq_config, to_marian
from roformer.models.seq2seq import Seq2Seq
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.training.optim import build_optimizer

VOCABULARY, END, PAD = 60, 1, 0


def marian(**changes):
    torch.manual_seed(0)
    config = MarianConfig(
        **{
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 3,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_position_embeddings": 64,
            "activation_function": "relu",
            "scale_embedding": True,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "pad_token_id": PAD,
            "eos_token_id": END,
            "decoder_start_token_id": END,
            "forced_eos_token_id": None,
            "init_std": 0.2,
            **changes,
        }
    )
    model = MarianMTModel(config)
    with torch.no_grad():  # biases and norms too, so that a swapped one shows
        for parameter in model.parameters():
            if parameter.ndim == 1 and parameter.requires_grad:
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def ours(model):
    copy = Seq2Seq(seq2seq_config(model.config), VOCABULARY)
    copy.load_state_dict(from_marian(model.state_dict()))
    return copy


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(2, VOCABULARY, (4, 9), generator=generator)
    mask = torch.arange(9) < torch.tensor([9, 4, 7, 1])[:, None]
    target = torch.randint(2, VOCABULARY, (4, 11), generator=generator)
    target[:, 0] = END
    return source, mask, target


def test_logits(batch):
    """Catches a swapped pair of norms, an unscaled embedding, a rotated or unmasked cross-attention,
    an acausal decoder, sines and cosines out of place."""
    source, mask, target = batch
    theirs = marian().eval()
    with torch.no_grad():
        wanted = theirs(
            input_ids=source, attention_mask=mask.long(), decoder_input_ids=target
        ).logits
        found = ours(theirs).eval()(source, target, attention_mask=mask)
    assert wanted.std() > 0.5
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_weights_there_and_back():
    theirs = marian()
    there = to_marian(ours(theirs).state_dict())
    state = theirs.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in there.items())
    left_out = state.keys() - there.keys()
    assert all("embed" in name or "lm_head" in name or "bias" in name for name in left_out)


def test_twenty_updates(batch):
    """Our loss and optimizer give their model's losses: smoothing, normaliser, gradients."""
    source, mask, target = batch
    theirs = marian()
    model = ours(theirs)
    config = OptimizerConfig(learning_rate=1e-3, weight_decay=0.0, clip_norm=None)
    optimizers = [build_optimizer(config, m) for m in (model, theirs)]
    labels = torch.cat([target[:, 1:], torch.full((4, 1), END)], 1)
    for _ in range(20):
        logits = model(source, target, attention_mask=mask)
        loss = smoothed_cross_entropy(logits.flatten(0, 1), labels.flatten(), 0.1) / labels.numel()
        logits = theirs(
            input_ids=source, attention_mask=mask.long(), decoder_input_ids=target
        ).logits
        wanted = functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1
        )
        for each, optimizer in zip((loss, wanted), optimizers, strict=True):
            each.backward()
            optimizer.step()
            optimizer.zero_grad()
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)
    assert wanted.item() < 4.0


@pytest.mark.parametrize(
    "change",
    [{"scale_embedding": False}, {"activation_function": "swish"}, {"encoder_ffn_dim": 40}],
    ids=str,
)
def test_variants_are_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        seq2seq_config(marian(**change).config)


def test_output_bias_is_refused():
    state = marian().state_dict()
    state["final_logits_bias"] = state["final_logits_bias"] + 1
    with pytest.raises(InputError, match="final_logits_bias"):
        from_marian(state)
