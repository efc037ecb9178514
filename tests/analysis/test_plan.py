"""The numbers of a plan, checked against what the models do when they run."""

import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from roformer.analysis.plan import duration, print_plan
from roformer.config.composing import compose
from roformer.models.causal import CausalLM
from roformer.models.cost import flops_per_token, memory_bytes, parameter_count
from roformer.models.encoder import MaskedLM
from roformer.models.seq2seq import Seq2Seq
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.training.hardware import GPUS

VOCABULARY, ROWS, LENGTH, PREDICTED = 400, 4, 128, 32


def outputs_of(pipeline, *overrides, rows=ROWS):
    """Return a config, its model, and a function of its logits and labels on random tokens."""
    ids = torch.randint(VOCABULARY, (rows, LENGTH), generator=torch.Generator().manual_seed(0))
    config = compose(pipeline, overrides).model
    if pipeline == "pretrain":
        model = MaskedLM(config, VOCABULARY)
        places = torch.arange(PREDICTED).expand(rows, -1)
        return config, model, lambda: (model(ids, predict=places), ids[:, :PREDICTED])
    if pipeline == "wmt":
        model = Seq2Seq(config, VOCABULARY)
        return config, model, lambda: (model(ids, ids), ids)
    model = CausalLM(config, VOCABULARY)
    return config, model, lambda: (model(ids), ids)


def predicted_in(pipeline):
    """Return the share of the tokens that the head runs on."""
    return PREDICTED / LENGTH if pipeline == "pretrain" else 1.0


def loss_of(outputs):
    logits, labels = outputs()
    return smoothed_cross_entropy(logits.flatten(0, -2), labels.flatten(), 0.0)


MODELS = {
    "encoder": ("pretrain",),
    "translation": ("wmt", "model.decoder_layers=2"),
    "causal": ("clm",),
    "performer": ("pretrain", "model/attention=performer", "model.attention.features=32"),
}


@pytest.mark.parametrize("name", MODELS)
def test_operations_are_those_of_an_update(name):
    """By torch's own count of a forward and backward pass; catches a part that is missing."""
    pipeline, *overrides = MODELS[name]
    config, _, outputs = outputs_of(pipeline, *overrides)
    with FlopCounterMode(display=False) as counter:
        loss_of(outputs).backward()
    told = flops_per_token(config, VOCABULARY, LENGTH, predicted_in(pipeline))
    assert counter.get_total_flops() / (ROWS * LENGTH) == pytest.approx(told, rel=0.1)


def test_the_relation_of_pairs_is_counted():
    """To the operation: the head of masked tokens hides it in what is allowed above."""
    config = compose("pretrain", []).model
    model = MaskedLM(config, VOCABULARY, related=True)
    ids, found = torch.randint(VOCABULARY, (ROWS, LENGTH)), []
    for related in (False, True):
        with FlopCounterMode(display=False) as counter:
            answers = model(ids, relation=related)
            sum(each.sum() for each in (answers if related else [answers])).backward()
        told = flops_per_token(config, VOCABULARY, LENGTH, 1.0, related=related)
        found.append((counter.get_total_flops(), told * ROWS * LENGTH))
    (without, told_without), (whole, told) = found
    assert whole - without == pytest.approx(told - told_without)
    count = parameter_count(config, VOCABULARY, related=True)
    assert count == sum(parameter.numel() for parameter in model.parameters())


def kept_bytes(model, outputs, half):
    """Return what autograd saves, each piece of memory once; weights are not counted."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with (
        torch.autocast("cpu", torch.bfloat16, enabled=half),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        loss_of(outputs)
    return sum(t.untyped_storage().nbytes() for p, t in kept.items() if p not in weights)


@pytest.mark.parametrize(
    ("name", "half"),
    [*((name, True) for name in MODELS), ("encoder", False), ("translation", False)],
)
def test_activations_are_about_what_the_backward_pass_keeps(name, half):
    """Bytes that more tokens add, within a fifth; the rest are autocast's copies of the weights."""
    pipeline, *overrides = MODELS[name]
    found = []
    for rows in (ROWS, 2 * ROWS):
        config, model, outputs = outputs_of(pipeline, *overrides, rows=rows)
        found.append(kept_bytes(model, outputs, half))
    settings = {"tokens": ROWS * LENGTH, "predicted": predicted_in(pipeline), "half": half}
    fixed, told = memory_bytes(config, VOCABULARY, **settings, checkpointing=False)
    assert told == pytest.approx(found[1] - found[0], rel=0.2)
    copies = (2 * found[0] - found[1]) / sum(p.numel() for p in model.parameters())
    assert fixed == (16 + round(copies)) * sum(p.numel() for p in model.parameters())
    assert memory_bytes(config, VOCABULARY, **settings, checkpointing=True)[1] < told / 2


@pytest.fixture
def told(capsys):
    """Return a function that plans a command line: the printed lines, and what follows their first words."""

    def plan(pipeline, *overrides, devices=1):
        print_plan(compose(pipeline, overrides), devices, 0.4)
        lines = capsys.readouterr().out.splitlines()
        return lines, {line[:16].strip(): line[16:].strip() for line in lines}

    return plan


def test_a_pretraining_is_added_up(told):
    lines, found = told("pretrain", "recipe=paper", devices=8)
    model = compose("pretrain", ["recipe=paper"]).model
    assert lines[0] == "roformer (rotary, base), recipe paper, data builtin"
    assert found["parameters"] == f"{parameter_count(model, 8192):,} (vocabulary 8,192)"
    assert found["tokens"] == "3,276,800,000 = 100,000 steps x 64 sequences x 512"
    operations = flops_per_token(model, 8192, 512, 0.15) * 100_000 * 64 * 512
    assert found["operations"].startswith(f"{operations:.3g} FLOP")
    assert found["device memory"].endswith("activations of 8 sequences (estimate)")
    minutes = operations / (8 * GPUS["A100"].flops * 0.4) / 60
    (line,) = (line for line in lines if line.strip().startswith("A100"))
    assert line.split() == ["A100", f"{minutes:.1f}", "min"]
    assert " on two cores with bf16" in found["time on CPU"]


@pytest.mark.parametrize(
    ("precision", "header", "noted"),
    [
        ("bf16", "in bf16 at 40% of the peak (assumed):", ["V100", "T4"]),
        ("fp16", "in fp16 at 40% of the peak (assumed):", []),
        ("fp32", "(assumed; training.precision=fp32 takes several times as long):", []),
    ],
)
def test_a_gpu_without_bf16_is_planned_in_fp16(told, precision, header, noted):
    lines, _ = told("pretrain", "recipe=paper", f"training.precision={precision}")
    assert any(line.startswith("time on 1 device(s), ") and line.endswith(header) for line in lines)
    note = "in fp16: it has no bf16, set training.precision=fp16"
    assert [line.split()[0] for line in lines if note in line] == noted


@pytest.mark.parametrize(
    ("pipeline", "data", "text"),
    [
        ("pretrain", "hub", "25.1 GB, 4.6 h of one core"),
        ("wmt", "hub", "1.4 GB, 24.1 min of one core"),
        ("pretrain", "chinese_hub", ""),  # words of jieba: another rate
    ],
)
def test_a_plan_says_what_a_known_text_takes_to_prepare(told, pipeline, data, text):
    shown = told(pipeline, "recipe=paper", f"data={data}")[1].get("text", "")
    assert shown.startswith(text) and bool(shown) == bool(text)


def test_a_duration_has_the_unit_that_suits_it():
    found = [duration(seconds) for seconds in (0.04, 42, 450, 11520, 1045440)]
    assert found == ["0.0 s", "42 s", "7.5 min", "3.2 h", "12.1 days"]


def test_what_does_not_fit_is_told(told):
    def small(*overrides):
        lines, _ = told("pretrain", "recipe=paper", "training.batch_size=512", *overrides)
        return [one.split()[0] for one in lines if one.endswith("lower runtime.micro_batch_size")]

    assert "T4" in (found := small()) and "H200" not in found
    assert not small("runtime.micro_batch_size=8")


def test_fsdp_cuts_weights_and_moments(told):
    shares = []
    for fsdp in ("false", "true"):
        _, found = told("pretrain", "model/size=large", f"runtime.fsdp={fsdp}", devices=4)
        shares.append(float(re.search(r"= ([\d.]+) weights", found["device memory"])[1]))
    assert shares[1] == pytest.approx(shares[0] / 4, abs=0.1) and shares[0] > 4


@pytest.mark.parametrize(("devices", "held"), [(1, "3,125"), (16, "1,563")])
def test_buckets_are_cut_where_there_are_more_devices(devices, held, told):
    """25,000 tokens in buckets of at most 3,125 are eight."""
    _, found = told("wmt", "recipe=paper", devices=devices)
    assert found["tokens"].startswith("2,500,000,000 = 100,000 steps x 25,000 of the target")
    assert f"activations of {held} tokens of source and target" in found["device memory"]


def test_stages_are_added_up_and_the_largest_must_fit(told):
    lines, found = told("stages", "recipe=paper")
    stages = compose("stages", ["recipe=paper"]).stages
    tokens = [stage.steps * stage.batch_size * stage.sequence_length for stage in stages]
    listed = [int(re.match(r"tokens +([\d,]+)", one)[1].replace(",", "")) for one in lines[2:8]]
    assert listed == tokens
    longest = max(stages, key=lambda stage: stage.batch_size * stage.sequence_length)
    assert f"activations of {longest.batch_size} sequences" in found["device memory"]
