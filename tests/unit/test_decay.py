"""Attention scores by distance: what is measured is what the model computes, and tables repeat it."""

import json
import math
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import roformer
from roformer.config.build import build
from roformer.config.schema import EncoderConfig
from roformer.errors import InputError
from roformer.inference.load import load_model
from roformer.models.encoder import MaskedLM
from roformer.pipelines import decay
from roformer.report.results import by_distance, decay_tables, networks, read_decay, trend
from roformer.report.runs import RecordError
from tests.conftest import REPOSITORY
from tests.e2e.conftest import SMALL, corpus, small_run  # noqa: F401

ENCODINGS = ("rotary", "learned", "sinusoidal", "none", "shaw", "t5", "alibi")
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


@pytest.mark.parametrize("head_dim", decay.HEAD_SIZES)
def test_the_bound_is_the_mean_of_the_partial_sums_of_eq_37(head_dim):
    """In fp64 by its definition: θ_i from i = 1 (Eq. 15), S_1 holds one term, the sign is nothing."""
    theta = 10000.0 ** (-2 * np.arange(head_dim // 2) / head_dim)
    recorded = decay.bound_by_distance()
    for distance in (0, 1, 10, 50, 100, 150, 250):
        turns = np.exp(1j * distance * theta)
        sums = [abs(turns[:j].sum()) for j in range(1, head_dim // 2 + 1)]
        expected = sum(sums) / (head_dim / 2)
        assert recorded["head_sizes"][str(head_dim)][distance] == pytest.approx(expected, rel=1e-4)
        both = roformer.decay_bound(torch.tensor([distance, -distance]), head_dim)
        assert both.tolist() == pytest.approx([expected] * 2, rel=1e-5)


def test_the_bound_of_figure_2_is_recorded():
    recorded = decay.bound_by_distance()
    shown = [recorded["head_sizes"]["128"][d] for d in (0, 10, 50, 100, 150, 250)]
    assert shown == pytest.approx([32.5, 17.95, 12.63, 10.23, 7.59, 6.55], abs=0.01)
    assert recorded["distances"] == list(range(251))


@pytest.mark.parametrize("kind", ENCODINGS)
def test_what_is_observed_is_what_the_layer_computes(kind):
    """The softmax of the scores times the values is the output of the model's own attention."""
    model, input_ids = network(kind)
    encoder = model.encoder
    calls = []
    for index, block in enumerate(encoder.blocks):

        def keep(layer, inputs, output, index=index):
            calls.append((index, layer, inputs, output))

        block.attention.register_forward_hook(keep)
    with torch.no_grad():
        encoder(input_ids)
        for index, layer, (x, positions, encoding, mask), output in calls:
            told = []
            twin = decay.ObservedAttention(layer, lambda *found, told=told: told.append(found))
            torch.testing.assert_close(
                twin.eval()(x, positions, encoding, mask), output, atol=1e-5, rtol=0
            )
            ((scores, weights),) = told
            probabilities = scores.softmax(-1)
            torch.testing.assert_close(weights, probabilities, atol=1e-6, rtol=0)
            _, _, v = layer.split(layer.projection(x), 3)
            y = probabilities @ v
            if encoding.adds_to_values:
                y = y + encoding.value_term(probabilities, positions, positions)
            again = layer.output(y.transpose(1, 2).flatten(-2))
            torch.testing.assert_close(again, output, atol=1e-5, rtol=0)
            assert scores.std(-1).mean() > 0.1, f"layer {index} is even: the test sees nothing"


@pytest.mark.parametrize("kind", ["rotary", "alibi"])
def test_observing_leaves_the_model_as_it_was(kind):
    model, input_ids = network(kind)
    layers = [block.attention for block in model.encoder.blocks]
    with torch.no_grad():
        before = model.encoder(input_ids)
        with decay.observed(model.encoder) as found:
            during = model.encoder(input_ids)
        assert len(found) == 2
        assert [block.attention for block in model.encoder.blocks] == layers
        assert torch.equal(model.encoder(input_ids), before)
    torch.testing.assert_close(during, before, atol=1e-5, rtol=1e-5)


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


def test_scores_are_summarised_by_layer_and_head_over_sequences():
    model, input_ids = network("alibi")
    with torch.no_grad():
        for block in model.encoder.blocks:
            block.attention.projection.weight.zero_()
            block.attention.projection.bias.zero_()
    values = decay.scores_by_distance(model, input_ids)
    assert values.shape == (3, 2, 2, 3, 4, T)
    summary = decay.summarised(values)
    slopes = [2.0**-4, 2.0**-8]
    for layer in range(2):
        for head, slope in enumerate(slopes):
            by_head = values[:, layer, head, 0, 0].mean(0)
            assert by_head == pytest.approx([-slope * r for r in range(T)], abs=1e-4)
        found = summary["by_layer"][layer]["score"]
        assert found["mean"] == pytest.approx([-sum(slopes) / 2 * r for r in range(T)], abs=1e-4)
        assert max(found["standard_error"]) == pytest.approx(0, abs=1e-6)
    # Row m's weights fall by e^-slope a step, and their sum over the keys is 1.
    place = np.arange(T)
    gap = abs(place[:, None] - place)
    scores = np.stack([-slope * gap for slope in slopes])
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    centred = scores - scores.mean(-1, keepdims=True)
    for quantity, expected in (("weight", weights), ("centred", centred)):
        means = [expected[:, gap == r].mean() for r in range(T)]
        assert summary["mean"]["both"][quantity]["mean"] == pytest.approx(means, abs=1e-3)
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
    """Return the folders of two runs of two updates, whose rate is too small to change a weight."""
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
    """The runs' updates change nothing, so trained and initial are the same network."""
    for run in runs:
        opened = decay.open_run(run, None)
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
    opened = decay.open_run(runs[0], None)
    ids = decay.validation_sequences(opened, 4, 32)
    tokenizer, stream = opened.shards.tokenizer, opened.shards.valid
    assert ids.shape == (4, 32)
    assert (ids[:, 0] == tokenizer.cls_id).all() and (ids[:, -1] == tokenizer.sep_id).all()
    blocks = [stream[n * 30 : (n + 1) * 30].tolist() for n in range(len(stream) // 30)]
    rows = ids[:, 1:-1].tolist()
    assert all(row in blocks for row in rows) and len({tuple(row) for row in rows}) == 4


def test_a_record_is_read_back_into_tables(record, tmp_path):
    file = tmp_path / "decay.json"
    file.write_text(json.dumps(record))
    read = read_decay(file)
    assert read == json.loads(file.read_text())
    bound, centred, weight, trends = decay_tables(read)
    assert bound.lines[0] == ["head size", "0", "10", "50", "100", "150", "200", "250"]
    assert bound.lines[3][:3] == ["128", "32.50", "17.95"]
    assert [line[:2] for line in centred.lines[1:3]] == [
        ["roformer (rotary)", "trained"],
        ["roformer (rotary)", "initial"],
    ]
    assert centred.lines[0][2:] == ["0", "1", "2", "5", "10", "20"]  # of 32 tokens
    value = record["runs"][0]["mean"]["both"]["weight"]["mean"][1]
    assert weight.lines[1][3] == f"{100 * value:.2f} (1)"
    assert len(trends.lines) == 5
    assert "3 validation sequences of 32 tokens" in centred.markdown()
    assert not any(str(value).startswith("/") for value in record.values())


def fake(record, changes):
    """Return the record with the trained rotary run alone, once a seed, its curves replaced."""
    runs = []
    for seed, curve in enumerate(changes):
        run = json.loads(json.dumps(record["runs"][0])) | {"seed": seed}
        run["mean"]["both"]["centred"]["mean"] = curve
        runs.append(run)
    return {**record, "runs": runs}


def test_seeds_of_a_configuration_are_averaged_and_their_trends_apart(record):
    steps = [float(-r) for r in range(32)]
    made = fake(record, [steps, [value + 2 for value in steps], steps[::-1]])
    (seeds,) = networks(made).values()
    assert trend(by_distance(seeds, "centred")) == pytest.approx([-1, -1, 1])
    (_, centred, _, trends) = decay_tables(made)
    assert centred.lines[1][2] == "-9.667 ± 18.502 (3)"
    assert trends.lines[1][3] == "-0.333 ± 1.155 (3)"
    assert math.isnan(trend([[1.0] * 32])[0])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r: r["bound"]["head_sizes"]["64"].pop(), "bound of 64: 250, not 251"),
        (lambda r: r["runs"][0]["by_layer"].pop(), "layers of"),
        (lambda r: r["runs"][1]["mean"]["inner"]["weight"]["mean"].pop(), "inner: 29, not 30"),
        (lambda r: r["runs"][0]["mean"].pop("both"), "'both'"),
        (lambda r: r.pop("bound"), "bound: is missing"),
    ],
)
def test_a_damaged_record_is_told(record, tmp_path, spoil, message):
    spoilt = json.loads(json.dumps(record))
    spoil(spoilt)
    (tmp_path / "decay.json").write_text(json.dumps(spoilt))
    with pytest.raises(RecordError, match=message) as refusal:
        read_decay(tmp_path / "decay.json")
    assert "\n" not in str(refusal.value)


def test_what_cannot_be_measured_is_told(runs, tmp_path):
    def refused(message, folders=runs, **options):
        with pytest.raises(InputError, match=message) as refusal:
            decay.measure(folders, sequences=options.pop("sequences", 2), **options)
        assert "\n" not in str(refusal.value)

    def copy(name, file, change):
        target = shutil.copytree(runs[0], tmp_path / name, symlinks=True)
        content = (target / file).read_bytes()
        changed = change(content)
        assert changed != content
        (target / file).write_bytes(changed)
        return [target]

    refused("is no pre-training run", [tmp_path])
    refused("is given twice", [runs[0], runs[0]])
    refused("give from 2 to as many --sequences", sequences=1)
    refused("give from 2 to as many --sequences", sequences=10**6)
    refused("learned table of 512 positions, and 600", length=600)
    refused("config.yaml is damaged", copy("torn", "config.yaml", lambda text: text[:-9] + b"{["))
    isolate = copy("isolate", "config.yaml", lambda t: t.replace(b": cross", b": isolate"))
    refused("documents=isolate", isolate)
    elu = copy("elu", "config.yaml", lambda t: t.replace(b"kind: softmax", b"kind: elu"))
    refused("has elu attention, which has no scores", elu)
    data = json.loads((runs[0] / "env.json").read_text())["data"].encode()
    refused(
        "was trained on other text", copy("o", "env.json", lambda t: t.replace(data, b"0" * 64))
    )
    weights = "checkpoints/step_00000002/model.safetensors"
    refused("is of update 1 of 2", copy("cut", weights, lambda content: content[:-1]))
    lengths = copy("l", "config.yaml", lambda t: t.replace(b"length: 32", b"length: 64"))
    refused("trained at 32, 64 tokens", [runs[0], *lengths])


def test_texts_are_not_mixed(runs, monkeypatch):
    real = decay.open_run

    def other(run, cache_dir):
        """Open the second run with another fingerprint."""
        opened = real(run, cache_dir)
        if run == runs[1]:
            monkeypatch.setattr(opened.shards, "fingerprint", "0" * 64)
        return opened

    monkeypatch.setattr(decay, "open_run", other)
    with pytest.raises(InputError, match="trained on different texts: measure them apart"):
        decay.measure(runs, sequences=2)


@pytest.mark.slow
def test_the_script_writes_a_record_and_prints_its_tables(runs, tmp_path):
    def script(*words):
        return subprocess.run(
            [sys.executable, REPOSITORY / "scripts" / "decay.py", *map(str, words)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )

    file = tmp_path / "records" / "decay.json"
    brief = ("--sequences", 2, "--threads", 1, "--control", "initial", "--output", file)
    printed = script(*runs, *brief)
    assert printed.returncode == 0, printed.stderr
    tables = "\n\n".join(table.markdown() for table in decay_tables(read_decay(file)))
    assert tables in printed.stdout
    assert script(file, "--table").stdout.strip() == tables
    for words, message in (
        ([tmp_path], "is no pre-training run"),
        ([tmp_path / "none.json", "--table"], "cannot be read"),
        ([runs[0], "--length", 4], "give at least 8"),
    ):
        refused = script(*words)
        assert refused.returncode == 2
        (line,) = refused.stderr.strip().split("\n")
        assert line.startswith("error: ") and message in line
