"""On a CUDA device: the same numbers, and what only it can do."""

import pytest
import torch

import roformer
from roformer.config.wmt import SearchConfig
from roformer.nn import rotary
from tests.e2e.conftest import small_run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("compiled", [False, True])
def test_rotation_equals_the_cpu(dtype, compiled):
    x, positions = torch.randn(2, 4, 100, 64), torch.arange(100)
    expected = rotary.rotate(x.double(), rotary.rotary_table(positions, 64))
    function = torch.compile(roformer.apply_rotary) if compiled else roformer.apply_rotary
    y = function(x.to("cuda", dtype), positions.cuda())
    assert y.dtype == dtype
    atol = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(y.cpu().double(), expected, atol=atol, rtol=0)


@pytest.mark.parametrize(
    "overrides",
    [["training.precision=bf16"], ["training.precision=fp16"], ["runtime.compile=true"]],
)
def test_a_run_learns(arguments, overrides):
    cuda = [a for a in arguments if a != "runtime.device=cpu"]
    summary, _ = small_run(
        [*cuda, "runtime.device=cuda"],
        "training.steps=400",
        "training.evaluate_every=100",
        "training.log_every=100",
        *overrides,
    )
    metrics = summary["metrics"]
    assert metrics["valid/mlm_loss"] < 0.9 * metrics["valid/unigram_entropy"]


@torch.no_grad()
def test_the_search_is_that_of_the_cpu():
    from roformer.evaluation.beam import beam_search
    from roformer.models.seq2seq import BeamDecoding
    from tests.property.models import build, tokens

    model, source = build("translation", "rotary"), tokens(rows=5, length=9)
    mask = torch.arange(9) < torch.tensor([[9], [1], [4], [7], [9]])
    outcomes = []
    for device in ("cpu", "cuda"):
        decoding = BeamDecoding(model.to(device), source.to(device), mask.to(device), 4)
        limits = torch.full((5,), 12)
        search = SearchConfig(beam=4)
        outcomes.append(
            beam_search(decoding, search, max_lengths=limits, begin_id=1, end_id=1, device=device)
        )
    cpu, cuda = ([best[0].tokens for best in found] for found in outcomes)
    assert cpu == cuda
