"""The measurement of attention by distance: it sees what the model computes, and its tables repeat it."""

import json
import math

import numpy as np
import pytest
import torch

from experiments.decay import measure as decay
from roformer.analysis.pretrained import open_pretrained
from roformer.config.build import build
from roformer.config.schema import EncoderConfig
from roformer.inference.load import load_model
from roformer.models.encoder import MaskedLM
from roformer.report.pages import script_of
from roformer.report.tables import markdown_of
from tests.scripts import run_script

decay_tables = script_of("decay")["decay_tables"]
ENCODINGS = (
    *("rotary", "learned", "sinusoidal", "none", "shaw", "t5", "alibi"),
    *("transformer_xl", "tupe", "deberta", "nezha", "fire", "kerple"),
)
T = 24


def network(kind, **position):
    """Return a model whose attention is far from even, and token ids."""
    config = build(
        EncoderConfig,
        {
            "name": "roformer",
            "size": "tiny",
            "attention": {"kind": "softmax"},
            "layers": 2,
            "hidden_size": 32,
            "heads": 2,
            "intermediate_size": 64,
            "position": {"kind": kind, **position},
        },
    )
    model = MaskedLM(config, 50).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model, torch.randint(50, (3, T))


@pytest.mark.parametrize("kind", ENCODINGS)
def test_what_is_observed_is_what_the_layers_compute(kind):
    """Their output is the model's own, from weights that are the softmax of the scores."""
    model, input_ids = network(kind)
    found = []
    layers = [block.attention for block in model.encoder.blocks]
    with torch.no_grad():
        before = model.encoder(input_ids)
        with decay.observed(model.encoder) as means:
            for block in model.encoder.blocks:
                block.attention.observe = lambda *observed: found.append(observed)
            during = model.encoder(input_ids)
        assert [block.attention for block in model.encoder.blocks] == layers and not means
        assert torch.equal(model.encoder(input_ids), before)
    torch.testing.assert_close(during, before, atol=1e-5, rtol=1e-5)
    for scores, weights in found:
        torch.testing.assert_close(weights, scores.softmax(-1), atol=1e-6, rtol=0)
        assert scores.std(-1).mean() > 0.1, "a layer is even: the test sees nothing"
    assert len(found) == len(layers)


def test_means_are_over_the_pairs_at_each_distance():
    """One pair at a time, and which side is before."""
    matrix = torch.randn(2, 3, T, T, dtype=torch.float64)
    found = decay.by_distance(matrix)
    for distance in range(T):
        pairs = [(m, n) for m in range(T) for n in range(T) if abs(m - n) == distance]
        kinds = {
            "both": pairs,
            "before": [(m, n) for m, n in pairs if n <= m],
            "after": [(m, n) for m, n in pairs if n >= m],
            "inner": [(m, n) for m, n in pairs if not {m, n} & {0, T - 1}],
        }
        for index, name in enumerate(decay.PAIRS):
            expected = sum((matrix[..., m, n] for m, n in kinds[name]), torch.zeros(2, 3))
            expected = expected / len(kinds[name]) if kinds[name] else expected * math.nan
            torch.testing.assert_close(
                found[..., index, distance], expected.double(), equal_nan=True
            )


def test_scores_are_summarised_by_layer_over_heads_and_sequences():
    """Without content, ALiBi's scores and all that follows from them are known."""
    model, input_ids = network("alibi")
    with torch.no_grad():
        for block in model.encoder.blocks:
            block.attention.projection.weight.zero_()
            block.attention.projection.bias.zero_()
    summary = decay.summarised(decay.scores_by_distance(model, input_ids))
    gap = abs(np.arange(T)[:, None] - np.arange(T))
    score = np.stack([-(2.0**-4) * gap, -(2.0**-8) * gap])
    weight = np.exp(score) / np.exp(score).sum(-1, keepdims=True)
    centred = score - score.mean(-1, keepdims=True)
    for name, expected in (("score", score), ("weight", weight), ("centred", centred)):
        means = [expected[:, gap == r].mean() for r in range(T)]
        for found in (summary["mean"]["both"], *summary["by_layer"]):
            assert found[name]["mean"] == pytest.approx(means, abs=1e-3)
            assert max(found[name]["standard_error"]) == pytest.approx(0, abs=1e-6)
    assert len(summary["mean"]["inner"]["score"]["mean"]) == T - 2


def test_initial_weights_are_those_that_the_training_began_with(runs):
    """The runs' steps change nothing, so trained and initial are the same network."""
    record = decay.measure(runs, control="initial", sequences=3)
    for run in runs:
        opened = open_pretrained(run)
        trained, initial = load_model(run).model, decay.initial_model(opened)
        for (name, theirs), ours in zip(
            trained.state_dict().items(), initial.state_dict().values(), strict=True
        ):
            assert torch.allclose(theirs, ours, atol=1e-20, rtol=0), name
    kinds = [(entry["position"], entry["weights"]) for entry in record["runs"]]
    assert kinds == [(p, w) for p in ("rotary", "learned") for w in ("trained", "initial")]
    for trained, initial in zip(record["runs"][::2], record["runs"][1::2], strict=True):
        assert trained["mean"] == initial["mean"] and trained["by_layer"] == initial["by_layer"]
        assert "sha256" in trained and "sha256" not in initial


@pytest.mark.slow
def test_the_script_writes_a_record_and_prints_its_tables(runs, tmp_path):
    script, file = decay.__file__, tmp_path / "records" / "decay.json"
    brief = ("--sequences", 3, "--threads", 1, "--control", "initial", "--output", file)
    printed = run_script(script, *runs, *brief)
    assert printed.returncode == 0, printed.stderr
    record = json.loads(file.read_text())
    assert not any(str(value).startswith("/") for value in record.values())
    bound, centred, *_ = tables = decay_tables(file)
    names = [line[0] for line in centred.lines[1:3]]
    assert names == ["roformer (rotary)", "roformer (rotary), initial weights"]
    assert centred.lines[0][1:] == ["0", "1", "2", "5", "10", "20"]  # of 32 tokens
    assert bound.screen() in printed.stdout
    assert file.with_suffix(".md").read_text() == f"{markdown_of(tables)}\n"
    assert run_script(script, file, "--table").stdout.strip() == markdown_of(tables)
    refused = run_script(script, tmp_path / "none.json", "--table")
    assert refused.returncode == 2 and "cannot be read" in refused.stderr
