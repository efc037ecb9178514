"""A run that is killed anywhere and started again is bitwise the run that was never stopped."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from roformer.training.checkpoint import damage
from tests.conftest import REPOSITORY
from tests.e2e.conftest import DROPOUT, assert_same, results, write_corpus
from tests.e2e.conftest import SMALL as PRETRAIN
from tests.e2e.kill_harness import ForkServer, Plan
from tests.e2e.test_glue_processes import SMALL as GLUE
from tests.e2e.wmt_runs import SMALL as WMT
from tests.e2e.wmt_runs import write_parallel_text

pytestmark = pytest.mark.slow
KILLS = 20
TRACKED = ["tracker=wandb", "tracker.mode=offline"]
ONCE = (
    "preparing the text",
    "starting the tracker",
    "half a row",
    "tracker: a row",
    "tracker: the end",
    "half of metrics.jsonl",
    "checkpoint: half of model.safetensors",
    "checkpoint: half of complete.json",
    "checkpoint: before it is renamed",
    "last link last: before",
    "half of summary.json",
)
"""Phases of every pipeline."""
SPANS = {
    "preparing the text": 0.3,
    "starting the tracker": 0.3,
    "step": 0.03,
    "evaluation": 0.05,
    "checkpoint": 0.03,
    "averaging": 0.03,
    "beam search": 0.3,
    "predictions": 0.05,
}
"""Seconds that phases last which are not a point: the kill comes at any time within."""
LATE = (
    "last",
    "tracker: the end",
    "half of summary",
    "predictions",
    "half of the",
    "half of bleu",
    "only the",
    "unlink",
    "averaging",
    "removing the old",
    "beam",
    "scores",
)
"""How the names of those begin that come when all is trained."""


class Pipeline(NamedTuple):
    arguments: list[str]
    phases: tuple[str, ...]
    """Besides `ONCE`."""


PIPELINES = {
    "pretrain": Pipeline(
        [
            *(*PRETRAIN, *DROPOUT, "training.steps=60", "training.checkpoint_every=5"),
            *("runtime.keep_checkpoints=2", "runtime.prepare_workers=1"),
        ],
        (
            *("step",) * 3,
            "evaluation",
            "checkpoint",
            "checkpoint: renamed",
            "removing a checkpoint",
            "last removing a checkpoint",
            "last link best: made aside",
        ),
    ),
    "glue": Pipeline(
        [
            *GLUE,
            *DROPOUT,
            "runtime.tune_process=false",
            "training.epochs=5",
            "runtime.progress=false",
        ],
        (
            *("step", "evaluation"),
            "link best: made aside",
            "removing a checkpoint",
            "predictions",
            "half of the predictions",
            "only the best: before",
            "unlink optimizer.safetensors",
            "last removing a checkpoint",
        ),
    ),
    "wmt": Pipeline(
        [
            *(*WMT, *DROPOUT, "training.steps=40", "training.checkpoint_every=5"),
            "runtime.prepare_workers=1",
        ],
        (
            *("step", "evaluation"),
            "last removing a checkpoint",
            "last link best: made aside",
            "averaging",
            "removing the old average",
            "beam search",
            "scores",
            "half of the translations",
            "half of bleu_statistics.json",
        ),
    ),
}


@pytest.fixture(scope="module")
def server():
    with ForkServer() as server:
        yield server


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    write_corpus(folder / "text.jsonl")
    write_parallel_text(folder / "pairs")
    return {
        "pretrain": [f"data.path={folder / 'text.jsonl'}"],
        "glue": [],
        "wmt": [f"data.path={folder / 'pairs'}"],
    }


@pytest.mark.parametrize("name", PIPELINES)
def test_twenty_kills_leave_no_trace(server, text, tmp_path, name):
    script, pipeline = str(REPOSITORY / "scripts" / f"{name}.py"), PIPELINES[name]
    moments = random.Random(name)

    def command(folder: Path) -> tuple[str, list[str], Path]:
        folder.mkdir(exist_ok=True)
        return script, [*pipeline.arguments, *text[name], *places(folder)], folder

    calm = command(tmp_path / "calm")
    server.finish(*calm)
    calm_run = run_in(calm[-1], name)
    waiting = [*ONCE, *pipeline.phases]
    assert len(waiting) >= KILLS
    killed = Counter[str]()
    rounds = 0
    while waiting:
        rounds += 1
        assert rounds <= 8, f"never came to {waiting}"
        folder = tmp_path / f"killed{rounds}"
        moments.shuffle(waiting)
        share = 2 if rounds == 1 else 1  # so that a kill is followed by many others and by few
        early = [phase for phase in waiting if not phase.startswith(LATE)]
        late = [phase for phase in waiting if phase.startswith(LATE)]
        for phase in [*early[::share], *late[::share]]:
            often = 6 if phase == "step" else 1
            delay = moments.uniform(0, SPANS.get(phase, 0.0))
            plan = Plan(phase, moments.randint(1, often), delay)
            script, arguments, _ = command(folder)
            tracked = TRACKED if "tracker" in phase else []  # wandb takes longer than a small run
            if server.kill(script, [*arguments, *tracked], folder, plan) is not None:
                break  # it got through: the phase's turn is in another run
            killed[phase] += 1
            waiting.remove(phase)
            assert_whole(folder, phase)
        server.finish(*command(folder))
        assert_as_if_never_stopped(run_in(folder, name), calm_run)
    assert killed == Counter([*ONCE, *pipeline.phases])
    print(f"\n{name}: {killed.total()} kills in {rounds} runs: {dict(killed)}")


def places(folder: Path) -> list[str]:
    """A cache of its own, so that the text is prepared by the run that is killed."""
    return [f"runtime.runs_dir={folder / 'runs'}", f"runtime.cache_dir={folder / 'cache'}"]


def run_in(folder: Path, name: str) -> Path:
    (run,) = (folder / "runs" / name).iterdir()
    return run


def assert_whole(folder: Path, phase: str) -> None:
    """What a kill may leave: nothing that looks finished and is not."""
    for step in folder.glob("runs/*/*/checkpoints/step_*"):
        assert damage(step) is None, (phase, step.name, damage(step))
    for metrics in folder.glob("runs/*/*/metrics.jsonl"):
        for line in metrics.read_text().splitlines()[:-1]:
            assert "step" in json.loads(line), phase
    for summary in folder.glob("runs/*/*/summary.json"):
        assert json.loads(summary.read_text())["status"] in ("done", "degenerate"), phase


def assert_as_if_never_stopped(ours: Path, theirs: Path) -> None:
    assert files(ours) == files(theirs)
    assert_same(ours, theirs)
    steps = [row["step"] for row in results(ours)]
    assert steps == sorted(set(steps))
    summary, expected = (json.loads((run / "summary.json").read_text()) for run in (ours, theirs))
    clock = {"wall_seconds", "tokens_per_second", "command", "commit", "peak_memory_bytes"}
    assert {k: v for k, v in summary.items() if k not in clock} == {
        k: v for k, v in expected.items() if k not in clock
    }
    for path in ours.glob("*/*.t[sx][vt]"):  # predictions and translations
        assert path.read_text() == (theirs / path.relative_to(ours)).read_text(), path.name
    for path in ours.glob("bleu_statistics.json"):
        assert path.read_text() == (theirs / path.name).read_text()
    for path in ours.rglob("*.json"):
        json.loads(path.read_text())
    for name in ("last", "best", "averaged"):
        ends = [(run / "checkpoints" / name).resolve().name for run in (ours, theirs)]
        assert ends[0] == ends[1], name
    for folder in (ours / "checkpoints").glob("[sa]*"):
        assert damage(folder) is None, folder.name


def files(run: Path) -> list[str]:
    """All files of a run but wandb's, of which every start has its own."""
    paths = (path.relative_to(run) for path in run.rglob("*"))
    return sorted(str(path) for path in paths if path.parts[0] != "wandb")
