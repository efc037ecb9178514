"""A small corpus, a small run, and what to compare of two runs."""

import json
import random
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState, PartialState
from safetensors.torch import load_file

from roformer.pipelines.glue import cells_of
from roformer.pipelines.run import train
from roformer.training.loop import Loop
from tests.conf.composed import built

HERE = ["runtime.device=cpu", "runtime.tune_process=false"]
"""On any machine alike; and a test must not change the process that the others run in."""
STEPS = ["steps=24", "log_every=4", "evaluate_every=12", "checkpoint_every=6"]
BLOCKS = [
    *(f"training.{key}" for key in (*STEPS, "batch_size=8", "sequence_length=32")),
    *("training.valid_sequences=16", "runtime.keep_checkpoints=10"),
]
COMMON = ["recipe=smoke", "tracker=none", *HERE]
SMALL = [*COMMON, "data=files", "data.tokenizer.vocab_size=200", *BLOCKS]
DROPOUT = ["model.hidden_dropout=0.1", "model.attention_dropout=0.1"]


def write_corpus(path: Path, documents: int = 300) -> None:
    """Sentences in which a word decides the one after next, so that context helps."""
    generator = random.Random(0)
    words = [a + b for a in "bcdfgklmnprst" for b in ("a", "el", "in", "or", "u")]
    rows = []
    for _ in range(documents):
        first, second = generator.sample(range(len(words)), 2)
        text = []
        for _ in range(60):
            first, second = second, (first * 3 + 7) % len(words)
            text.append(words[first])
        rows.append(json.dumps({"text": " ".join(text)}))
    path.write_text("\n".join(rows) + "\n")


def places(folder: Path) -> list[str]:
    """Return the overrides that keep runs and prepared data in a folder."""
    return [f"runtime.runs_dir={folder / 'runs'}", f"runtime.cache_dir={folder / 'cache'}"]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Return (overrides that read the corpus, its prepared shards shared by all tests)."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder / "text.jsonl")
    return [f"data.path={folder / 'text.jsonl'}", f"runtime.cache_dir={folder / 'cache'}"]


@pytest.fixture
def arguments(corpus, tmp_path):
    """Return the command line of a small run into `tmp_path`."""
    return [*SMALL, *corpus, f"runtime.runs_dir={tmp_path / 'runs'}"]


@pytest.fixture(scope="session")
def pretrained(corpus, tmp_path_factory):
    """Return the folder of a small run that was never stopped, to be left as it is."""
    where = f"runtime.runs_dir={tmp_path_factory.mktemp('pretrained') / 'runs'}"
    return small_run([*SMALL, *corpus, where])[1]


@pytest.fixture
def stop_at(monkeypatch):
    """Return a function that makes the process die when it begins step `step`."""

    def stop(step):
        update = Loop._step

        def dying(loop, batches):
            if loop.state.step + 1 == step:
                raise KeyboardInterrupt
            update(loop, batches)

        monkeypatch.setattr(Loop, "_step", dying)
        return lambda: monkeypatch.setattr(Loop, "_step", update)

    return stop


@pytest.fixture
def resumed(stop_at):
    """Return a function that runs until it dies when it begins a step, and then to the end.

    It takes the step, the function that runs and its arguments, returns what the second call does;
    `then` are overrides of only that call.
    """

    def run(step, start, *given, then=(), **named):
        go_on = stop_at(step)
        with pytest.raises(KeyboardInterrupt):
            start(*given, **named)
        go_on()
        return start(*given, *then, **named)

    return run


def forget_processes() -> None:
    """Let accelerate begin anew, with what the next run asks for."""
    AcceleratorState._reset_state()
    PartialState._reset_state()


def run_in_process(pipeline, arguments, *overrides, runs="runs"):
    """Run a pipeline in this process, runs next to `runtime.runs_dir`; return (summary, folder)."""
    forget_processes()
    given = [*arguments, *overrides]
    where = [a.partition("=")[2] for a in arguments if a.startswith("runtime.runs_dir=")][-1]
    folder = Path(where).with_name(runs)
    config = built(pipeline, [*given, f"runtime.runs_dir={folder}"])
    if pipeline == "glue":
        (config,) = cells_of(config)
    summary = train(pipeline, config)
    return summary, folder / pipeline / summary["run_id"]


def small_run(arguments, *overrides, runs="runs"):
    """Pre-train in this process; see `run_in_process`."""
    return run_in_process("pretrain", arguments, *overrides, runs=runs)


def weights(folder: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / name / "model.safetensors")


def results(folder: Path) -> list[dict]:
    """The rows of metrics.jsonl without what depends on the clock."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("perf/")} for row in rows]


def assert_same(ours: Path, theirs: Path) -> None:
    """Bitwise: all weights, all metrics."""
    assert results(ours) == results(theirs)
    expected = weights(theirs)
    for name, tensor in weights(ours).items():
        assert torch.equal(tensor, expected[name]), name


def assert_close(ours: Path, theirs: Path, tolerance: float = 2e-5) -> None:
    """To the order of floating-point sums: all weights, all losses."""
    for row, expected in zip(results(ours), results(theirs), strict=True):
        assert row == pytest.approx(expected, rel=tolerance * 10, abs=tolerance)
    expected = weights(theirs)
    for name, tensor in weights(ours).items():
        torch.testing.assert_close(tensor, expected[name], atol=tolerance, rtol=1e-3)
