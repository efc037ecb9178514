"""A trained encoder gets other positions and learns the hidden states of the original."""

from dataclasses import replace

import pytest
import torch
import transformers
from accelerate import Accelerator

import roformer
from roformer.config.composing import compose
from roformer.config.position import Learned, PositionConfig, Rotary
from roformer.config.typed import OpenUnion
from roformer.data.text import prepare_text
from roformer.errors import InputError
from roformer.inference.export import export
from roformer.inference.resolve import resolve
from roformer.inference.start import open_start
from roformer.tasks.match import MatchTask
from tests.e2e.conftest import BLOCKS, COMMON, run_in_process
from tests.e2e.test_warm_starts import published
from tests.trained import UNCASED, run_of, stored

SMALL = [*COMMON, "data=files", *BLOCKS]
KINDS = OpenUnion.kinds.__func__(PositionConfig)


def original(folder):
    """Write the run of a BERT with random weights."""
    return run_of(folder, stored(position=Learned(max_positions=64), name="bert"))


@pytest.fixture(scope="module")
def small(corpus, tmp_path_factory):
    """Return the command line of a small conversion."""
    folder = tmp_path_factory.mktemp("convert")
    where = [f"init_from={original(folder / 'original')}", f"runtime.runs_dir={folder / 'runs'}"]
    return [*SMALL, *corpus, *where]


@pytest.fixture(scope="module")
def task(small):
    """Return a function that builds the task of a conversion to other positions."""
    config = compose("convert", small)
    text = prepare_text(config.data, config.runtime.cache_dir, tokenizer=UNCASED, progress=False)

    def make(position):
        model = replace(config.model, position=position)
        task = MatchTask(replace(config, model=model), text)
        task.build_model()
        return task

    return make


def test_the_error_falls_and_the_result_opens_everywhere(small, tmp_path, capsys):
    steps = ["training.steps=60", "optimizer.learning_rate=1e-2"]
    summary, folder = run_in_process("convert", small, *steps)
    shown, metrics = capsys.readouterr().out, summary["metrics"]
    layers = [metrics[f"valid/error_layer_{n}"] for n in (1, 2)]
    assert summary["status"] == "done" and summary["headline"] == "valid/error"
    assert all(now < 0.6 * then for now, then in zip(layers, summary["swapped_error"], strict=True))
    assert metrics["valid/error"] == pytest.approx(sum(layers) / 2)
    assert f"\n{folder.name}: " in shown and " parameters are trained, on " in shown
    assert "learned positions replaced by rotary" in shown
    assert "untrained_head" not in resolve(folder).description
    assert f"by layer: {layers[0]:.3f} {layers[1]:.3f}" in shown

    trained = roformer.load_model(folder)
    assert trained.model.encoder.config.position == Rotary()
    assert open_start(str(folder)).weights.keys() == trained.model.state_dict().keys()
    assert export(folder, tmp_path / "exported").kind == "roformer"
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "reproduce the hidden states of its original" in card and '"vocab_size"' not in card


@pytest.mark.parametrize("kind", [k for k in KINDS if KINDS[k].can("bidirectional")])
def test_every_encoding_can_be_the_target(task, kind):
    """Every weight of attention and positions learns, and no other one."""
    position = KINDS[kind](**({"max_positions": 48} if kind in ("learned", "tupe") else {}))
    matching = task(position)
    assert min(matching.swapped) > 0
    for turn in (0, 1):  # blocks and pairs
        batch = matching.batches[matching.keys(turn + 1, 0, 1)[0]]
        matching.loss(matching.model, batch).backward()
    for name, parameter in matching.model.named_parameters():
        learns = name.startswith("encoder.position.") or ".attention." in name
        assert (parameter.grad is not None) == learns, name


def test_the_error_is_the_share_of_the_variance_that_the_student_lacks(task):
    matching = task(Rotary())
    keys = [matching.validation.turn(n) for n in range(len(matching.validation.parts))]

    @torch.no_grad()
    def layers(encoder):
        batches = [encoder(**matching.validation[key], every_layer=True) for key in keys]
        each = zip(*batches, strict=True)
        return [torch.cat([part.flatten(0, 1) for part in layer]) for layer in each]

    ours, theirs = layers(matching.model.encoder), layers(matching.teacher)
    for found, wanted, error in zip(ours, theirs, matching.swapped, strict=True):
        lacking = (found - wanted).square().sum() / (wanted - wanted.mean(0)).square().sum()
        assert error == pytest.approx(lacking.item(), rel=1e-4)
    with torch.no_grad():
        metrics = matching.evaluate(matching.model, Accelerator(cpu=True))
    found = [metrics[f"valid/error_layer_{n}"] for n in (1, 2)]
    assert found == pytest.approx(matching.swapped, rel=1e-4)


def test_a_head_that_was_drawn_and_not_trained_predicts_nothing(small, tmp_path):
    """A published encoder has none; the conversion and its export say so."""
    bert = published(tmp_path / "bert", transformers.BertModel)
    start = [f"init_from={bert}", "training.steps=1", "training.checkpoint_every=1"]
    _, folder = run_in_process("convert", small, *start)
    with pytest.raises(InputError, match="predicts no tokens"):
        roformer.load_model(folder).fill_mask("a [MASK]")
    card = (export(folder, tmp_path / "exported").folder / "README.md").read_text()
    assert "head that was not trained" in card and "pipeline_tag: feature-extraction" in card


@pytest.mark.parametrize(
    ("pipeline", "overrides", "message"),
    [
        ("convert", ["model/position=learned"], "has learned positions already: choose other ones"),
        ("convert", ["training.sequence_length=65"], "sequence_length=65: .*, reads 64 tokens"),
        ("pretrain", ["objective=match", "init_from=null"], "objective=match .*: set init_from"),
    ],
)
def test_nothing_to_match_is_one_line(small, pipeline, overrides, message):
    with pytest.raises(InputError, match=message):
        run_in_process(pipeline, small, *overrides)
