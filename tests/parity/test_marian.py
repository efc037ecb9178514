"""An exported encoder-decoder against transformers' Marian and Pegasus: logits and training."""

import pytest
import torch
from torch.nn import functional

from roformer.config.attention import SoftmaxAttention
from roformer.config.position import Sinusoidal
from roformer.config.schema import OptimizerConfig
from roformer.config.wmt import SearchConfig, Seq2SeqConfig
from roformer.interop.equivalents import exported_translation, to_marian
from roformer.models.seq2seq import Seq2Seq
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.training.optim import build_optimizer

VOCABULARY, END, PAD = 60, 1, 0


def models(norm="post"):
    """Return a model and its export, with no weight at its initial 0 or 1."""
    torch.manual_seed(0)
    config = Seq2SeqConfig(
        name="marian",
        size="2x32",
        layers=2,
        decoder_layers=3,
        hidden_size=32,
        heads=4,
        intermediate_size=48,
        norm=norm,
        activation="relu",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        position=Sinusoidal(),
        attention=SoftmaxAttention(),
    )
    model = Seq2Seq(config, VOCABULARY)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    exported = exported_translation(
        config,
        model.state_dict(),
        SearchConfig(),
        vocab_size=VOCABULARY,
        pad_id=PAD,
        end_id=END,
        max_length=30,
    )
    return model, exported.model


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(2, VOCABULARY, (4, 9), generator=generator)
    mask = torch.arange(9) < torch.tensor([9, 4, 7, 1])[:, None]
    target = torch.randint(2, VOCABULARY, (4, 11), generator=generator)
    target[:, 0] = END
    return source, mask, target


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_logits(batch, norm):
    """Catches a swapped pair of norms, an unscaled embedding, a rotated or unmasked cross-attention,
    an acausal decoder, sines and cosines out of place."""
    source, mask, target = batch
    model, theirs = models(norm)
    with torch.no_grad():
        wanted = theirs(
            input_ids=source, attention_mask=mask.long(), decoder_input_ids=target
        ).logits
        found = model.eval()(source, target, attention_mask=mask)
    assert wanted.std() > 0.5
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_weight_is_exported(norm):
    model, theirs = models(norm)
    converted, state = to_marian(model.state_dict()), theirs.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in converted.items())
    sizes = [sum(t.numel() for t in each.values()) for each in (converted, model.state_dict())]
    assert sizes[0] == sizes[1]
    left_out = state.keys() - converted.keys()
    assert all("embed" in name or "lm_head" in name or "bias" in name for name in left_out)


def test_twenty_steps(batch):
    """Our loss and optimizer give their model's losses: smoothing, normaliser, gradients."""
    source, mask, target = batch
    model, theirs = models()
    theirs.train()
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
