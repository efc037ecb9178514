"""The costs of encodings are measured of every encoding, and of one and the same token."""

import torch

from benchmarks import encodings
from roformer.nn.position import ENCODINGS


def test_every_encoding_is_measured():
    assert {config.kind for config in encodings.CONFIGS.values()} == {c.kind for c in ENCODINGS}


@torch.no_grad()
def test_a_call_reads_the_token_at_its_place_again():
    """Catches a cache that grows from call to call."""
    model = encodings.model_of("deberta")
    call = encodings.decoder(model, 9)
    first = call()
    assert torch.equal(call(), first)
    # Another token before it would be another text.
    assert not torch.equal(encodings.decoder(model, 8)(), first)
