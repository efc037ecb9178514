"""Attention scores by distance: what is measured is what the model computes, and tables repeat it."""

import json
import math
import shutil

import numpy as np
import pytest
import torch

from roformer.analysis import decay
from roformer.analysis.pretrained import open_pretrained
from roformer.config.build import build
from roformer.config.schema import EncoderConfig
from roformer.errors import InputError
from roformer.inference.load import load_model
from roformer.models.encoder import MaskedLM
from roformer.report.pages import script_of
from tests.e2e.conftest import SMALL, corpus, small_run  # noqa: F401
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


def test_the_bound_of_figure_2_is_recorded():
    recorded = decay.bound_by_distance()
    shown = [recorded["head_sizes"]["128"][d] for d in (0, 10, 50, 100, 150, 250)]
    assert shown == pytest.approx([32.5, 17.95, 12.63, 10.23, 7.59, 6.55], abs=0.01)
    assert recorded["distances"] == list(range(251))


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
                block.attention.tell = lambda *told: found.append(told)
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


def test_the_standard_error_is_over_sequences():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(9, 2, 2, 3, 4, T))
    found = decay.summarised(values)["mean"]["after"]["weight"]
    by_sequence = values[:, :, :, 2, 2].mean((1, 2))
    assert found["mean"] == pytest.approx(by_sequence.mean(0), rel=1e-3)
    assert found["standard_error"] == pytest.approx(by_sequence.std(0, ddof=1) / 3, rel=0.06)


BRIEF = ["training.steps=2", "training.evaluate_every=2", "training.checkpoint_every=1"]


@pytest.fixture(scope="module")
def runs(corpus, tmp_path_factory):  # noqa: F811
    """Return the folders of two runs of two steps, whose rate is too small to change a weight."""
    folder = tmp_path_factory.mktemp("decay") / "runs"
    base = [*SMALL, *corpus, f"runtime.runs_dir={folder}", "optimizer.learning_rate=1e-30"]
    return [
        small_run(base, *BRIEF, *words)[1]
        for words in (["seed=3"], ["seed=3", "model/position=learned"])
    ]


@pytest.fixture(scope="module")
def record(runs):
    return decay.measure(runs, control="initial", sequences=3)


def test_initial_weights_are_those_that_the_training_began_with(runs, record):
    """The runs' steps change nothing, so trained and initial are the same network."""
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


def test_sequences_are_validation_blocks_without_masks(runs):
    opened = open_pretrained(runs[0])
    ids = decay.validation_sequences(opened, 4, 32)
    tokenizer, stream = opened.text.tokenizer, opened.text.valid
    assert ids.shape == (4, 32)
    assert (ids[:, 0] == tokenizer.cls_id).all() and (ids[:, -1] == tokenizer.sep_id).all()
    blocks = [stream[n * 30 : (n + 1) * 30].tolist() for n in range(len(stream) // 30)]
    rows = ids[:, 1:-1].tolist()
    assert all(row in blocks for row in rows) and len({tuple(row) for row in rows}) == 4


def test_a_record_is_read_back_into_tables(record, tmp_path):
    file = tmp_path / "decay.json"
    file.write_text(json.dumps(record))
    bound, centred, weight, trends = decay_tables(file)
    assert bound.lines[0] == ["head size", "0", "10", "50", "100", "150", "200", "250"]
    assert bound.lines[3][:3] == ["128", "32.50", "17.95"]
    names = [line[0] for line in centred.lines[1:3]]
    assert names == ["roformer (rotary)", "roformer (rotary), initial weights"]
    assert centred.lines[0][1:] == ["0", "1", "2", "5", "10", "20"]  # of 32 tokens
    value = record["runs"][0]["mean"]["both"]["weight"]["mean"][1]
    assert weight.lines[1][2] == f"{100 * value:.2f} (1)"
    assert len(trends.lines) == 5
    assert "3 validation sequences of 32 tokens" in centred.markdown()
    assert not any(str(value).startswith("/") for value in record.values())


def fake(record, changes):
    """Return the record with only the trained rotary run, once per seed, its curves replaced."""
    runs = []
    for seed, curve in enumerate(changes):
        run = json.loads(json.dumps(record["runs"][0])) | {"seed": seed}
        run["mean"]["both"]["centred"]["mean"] = curve
        runs.append(run)
    return {**record, "runs": runs}


def test_seeds_of_a_configuration_are_averaged_and_their_trends_apart(record, tmp_path):
    steps = [float(-r) for r in range(32)]
    made = fake(record, [steps, [value + 2 for value in steps], steps[::-1]])
    (tmp_path / "decay.json").write_text(json.dumps(made))
    (_, centred, _, trends) = decay_tables(tmp_path / "decay.json")
    assert centred.lines[1][1] == "-9.667 ± 18.502 (3)"
    assert trends.lines[1][2] == "-0.333 ± 1.155 (3)"


def edited(run, target, name, old, new):
    """Return a copy of a run with a piece of a file replaced."""
    file = shutil.copytree(run, target, symlinks=True) / name
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new))
    return target


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"runtime:", b"{[", "config.yaml is damaged"),
        (b": cross", b": isolate", "documents=isolate"),
        (b"kind: softmax", b"kind: elu", "has elu attention, which has no scores"),
    ],
)
def test_a_run_that_cannot_be_opened_is_one_line(runs, tmp_path, old, new, message):
    with pytest.raises(InputError, match=message) as refusal:
        open_pretrained(edited(runs[0], tmp_path / "run", "config.yaml", old, new))
    assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match="is no pre-training run"):
        open_pretrained(tmp_path)
    data = json.loads((runs[0] / "env.json").read_text())["data"].encode()
    with pytest.raises(InputError, match="was trained on other text"):
        open_pretrained(edited(runs[0], tmp_path / "o", "env.json", data, b"0" * 64))


@pytest.mark.filterwarnings("ignore:.* is skipped")
def test_what_cannot_be_measured_is_one_line(runs, tmp_path, monkeypatch):
    def refused(message, folders=runs, sequences=2, length=None):
        with pytest.raises(InputError, match=message) as refusal:
            decay.measure(folders, sequences=sequences, length=length)
        assert "\n" not in str(refusal.value)

    refused("is given twice", [runs[0], runs[0]])
    refused("give from 2 to as many --sequences", sequences=1)
    refused("give from 2 to as many --sequences", sequences=10**6)
    refused("learned table of 512 positions, and 600", length=600)
    other = edited(runs[0], tmp_path / "l", "config.yaml", b"length: 32", b"length: 64")
    refused("trained at 32, 64 tokens", [runs[0], other])
    cut = shutil.copytree(runs[0], tmp_path / "cut", symlinks=True)
    (cut / "checkpoints" / "step_00000002" / "model.safetensors").write_bytes(b"cut")
    refused("is of step 1 of 2", [cut])
    opened = [open_pretrained(run) for run in runs]
    monkeypatch.setattr(opened[1].text, "fingerprint", "0" * 64)
    monkeypatch.setattr(decay, "open_pretrained", lambda run, _: opened[runs.index(run)])
    refused("trained on different texts: measure them apart")


@pytest.mark.slow
def test_the_script_writes_a_record_and_prints_its_tables(runs, tmp_path):
    file = tmp_path / "records" / "decay.json"
    brief = ("--sequences", 2, "--threads", 1, "--control", "initial", "--output", file)
    printed = run_script("decay", *runs, *brief)
    assert printed.returncode == 0, printed.stderr
    tables = "\n\n".join(table.markdown() for table in decay_tables(file))
    assert decay_tables(file)[0].screen() in printed.stdout
    assert file.with_suffix(".md").read_text() == f"{tables}\n"
    assert run_script("decay", file, "--table").stdout.strip() == tables
    for words, message in (
        ([tmp_path], "is no pre-training run"),
        ([tmp_path / "none.json", "--table"], "cannot be read"),
        ([runs[0], "--length", 4], "give at least 8"),
    ):
        refused = run_script("decay", *words)
        assert refused.returncode == 2
        (line,) = refused.stderr.strip().split("\n")
        assert line.startswith("error: ") and message in line
