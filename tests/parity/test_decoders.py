"""Causal models and encoder-decoders equal their equivalents in `transformers`: logits and training."""

import pytest
import torch
from torch.nn import functional

from roformer.config import position as encodings
from roformer.config.attention import SoftmaxAttention
from roformer.config.build import plain
from roformer.config.lm import CausalConfig
from roformer.config.schema import OptimizerConfig
from roformer.config.wmt import SearchConfig, Seq2SeqConfig
from roformer.data.tokenizers import ByteVocabulary
from roformer.interop.equivalents import equivalent
from roformer.models.causal import CausalLM
from roformer.models.seq2seq import Seq2Seq
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.training.optim import build_optimizer
from tests.data.parallel_texts import trained
from tests.parity.test_transformers import relative

TOLERANCE = 1e-5
SIZES = {
    "name": "x",
    "size": "x",
    "layers": 2,
    "hidden_size": 32,
    "heads": 4,
    "intermediate_size": 48,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "attention": SoftmaxAttention(),
}


def with_equivalent(model, config, tokenizer, length, **description):
    """Return a model and its equivalent, with no weight at its initial 0 or 1."""
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    described = {"vocab_size": model.tokens.num_embeddings, **description}
    theirs = equivalent(described, config, model.state_dict(), tokenizer, length).model
    return model.eval(), theirs


def causal(position):
    config = CausalConfig(**SIZES, position=position)
    tokenizer = ByteVocabulary()
    model = CausalLM(config, tokenizer.size)
    return with_equivalent(model, config, tokenizer, 300, kind="causal")


def translation(norm):
    config = Seq2SeqConfig(
        **SIZES, decoder_layers=3, norm=norm, activation="relu", position=encodings.Sinusoidal()
    )
    tokenizer = trained("bytes", merges=40)
    model = Seq2Seq(config, tokenizer.size)
    search = plain(SearchConfig())
    return with_equivalent(model, config, tokenizer, 30, kind="translation", search=search)


CAUSAL = {
    "gpt2": encodings.Learned(max_positions=300),
    "gpt_neox": encodings.Rotary(layout="half", fraction=0.5),
}


@pytest.mark.parametrize("length", [1, 7, 128, 300])
@pytest.mark.parametrize("kind", CAUSAL)
def test_causal_logits(kind, length):
    """Also beyond the length where our kernel changes. Catches norms in another place, another GELU,
    an untied or unscaled output, swapped queries and keys, the other rotary layout."""
    model, theirs = causal(CAUSAL[kind])
    assert theirs.config.model_type == kind
    ids = torch.randint(256, (3, length))
    with torch.no_grad():
        wanted, found = theirs(input_ids=ids).logits, model(ids)
    assert wanted.std() > 0.1
    assert relative(found, wanted) <= TOLERANCE


def translation_batch():
    source, target = torch.randint(3, 250, (4, 9)), torch.randint(3, 250, (4, 11))
    return source, torch.arange(9) < torch.tensor([9, 4, 7, 1])[:, None], target


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_translation_logits(norm):
    """Catches a swapped pair of norms, an unscaled embedding, a rotated or unmasked cross-attention,
    an acausal decoder, sines and cosines out of place."""
    source, mask, target = translation_batch()
    model, theirs = translation(norm)
    inputs = {"input_ids": source, "attention_mask": mask.long(), "decoder_input_ids": target}
    with torch.no_grad():
        wanted, found = theirs(**inputs).logits, model(source, target, attention_mask=mask)
    assert wanted.std() > 0.5
    assert relative(found, wanted) <= TOLERANCE


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "post", "pre"])
def test_twenty_steps_have_their_losses(kind):
    """Catches a gradient that is lost on the way; of translation smoothing and normaliser too."""
    if kind in CAUSAL:
        model, theirs = causal(CAUSAL[kind])
        ids = torch.randint(256, (4, 30))

        def losses():
            logits = model(ids)[:, :-1].flatten(0, 1)
            return functional.cross_entropy(logits, ids[:, 1:].flatten()), theirs(
                ids, labels=ids
            ).loss
    else:
        model, theirs = translation(kind)
        source, mask, target = translation_batch()
        labels = torch.cat([target[:, 1:], torch.ones(4, 1, dtype=torch.long)], 1).flatten()
        inputs = {"input_ids": source, "attention_mask": mask.long(), "decoder_input_ids": target}

        def losses():
            logits = model(source, target, attention_mask=mask).flatten(0, 1)
            ours = smoothed_cross_entropy(logits, labels, 0.1) / len(labels)
            wanted = theirs(**inputs).logits.flatten(0, 1)
            return ours, functional.cross_entropy(wanted, labels, label_smoothing=0.1)

    theirs.train()
    config = OptimizerConfig(learning_rate=1e-3, weight_decay=0.0, clip_norm=None)
    optimizers = [build_optimizer(config, each) for each in (model, theirs)]
    first = None
    for _ in range(20):
        ours, wanted = losses()
        for loss, optimizer in zip((ours, wanted), optimizers, strict=True):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        first = first or wanted.item()
        assert ours.item() == pytest.approx(wanted.item(), rel=1e-4)
    assert wanted.item() < 0.9 * first
