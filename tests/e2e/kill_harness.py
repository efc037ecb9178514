"""Start the real scripts often and cheaply, and kill them where it hurts.

Importing everything takes longer than a small run. So one process, the fork server, imports it once
and forks a child for every start; the child runs the script as `python scripts/….py …` would. Before,
it wraps functions (replaces none), so that it can report over a pipe that it has reached a certain
phase: inside a step, between two files of a checkpoint, in half a line of metrics.jsonl. There it is
killed from outside, at once or after a while; at the end of the phase it waits for its death.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import REPOSITORY

PATIENCE = 120
"""Seconds after which a child that nobody killed gives up."""


class Plan(NamedTuple):
    """The place where a child dies: `delay` seconds into the phase's `occurrence`-th occurrence."""

    phase: str
    occurrence: int = 1
    delay: float = 0.0


IMPORTED = (
    *("accelerate", "datasets", "transformers", "torch._dynamo", "torch.profiler"),
    *("wandb", "wandb.apis.public", "wandb.sdk.launch.utils"),
    *("roformer.pipelines.glue", "roformer.tasks.translation", "roformer.report.scores"),
    *("evaluate", "roformer.evaluation.glue_metrics"),
)
"""Modules that a start would import, also late: wandb imports the most when it begins a run."""


class ForkServer:
    """The process that forks the children; one at a time. Use as a context."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.kill_harness"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def start(
        self,
        script: str,
        arguments: list[str],
        folder: Path,
        plan: Plan | None = None,
        *,
        environment: dict[str, str | None] | None = None,
        constants: dict[str, Any] | None = None,
    ) -> int:
        """Start a script in `folder`, as the first of a process group; return its process id.

        `printed.txt` there gets its output. It reports when it reaches the plan's place, and waits.
        Variables of the `environment` differ (None: not set), and `constants` by their full name.
        """
        request = (script, arguments, str(folder), plan, environment or {}, constants or {})
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self.line())

    def line(self) -> str:
        """Return the next message: `at`, or `ended` with the exit status."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def finish(self, script: str, arguments: list[str], folder: Path) -> str:
        """Run a script to its end; return what it printed."""
        self.start(script, arguments, folder)
        code, printed = self.ended(folder)
        assert code == 0, printed
        return printed

    def ended(self, folder: Path, line: str | None = None) -> tuple[int, str]:
        """Wait for the end; return (exit code, minus the signal that killed it; what it printed)."""
        word, _, code = (line or self.line()).partition(" ")
        assert word == "ended", word
        return int(code), (folder / "printed.txt").read_text()

    def kill(self, script: str, arguments: list[str], folder: Path, plan: Plan) -> str | None:
        """Start a script and kill it as planned; return None, or what it printed if it got through."""
        child = self.start(script, arguments, folder, plan)
        line = self.line()
        if line == "at":
            time.sleep(plan.delay)
            os.kill(child, signal.SIGKILL)
            code, printed = self.ended(folder)
            assert code == -signal.SIGKILL, printed
            return None
        code, printed = self.ended(folder, line)
        assert code == 0, printed
        return printed


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return found


def serve() -> None:
    """Fork a child for each request; returns only in a child that is to run a script."""
    for module in IMPORTED:
        importlib.import_module(module)
    told = os.dup(1)
    gc.freeze()  # or every child would copy what its collector looks at
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            become(told, *json.loads(line))
            return
        os.write(told, f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(told, f"ended {os.waitstatus_to_exitcode(status)}\n".encode())
    raise SystemExit


def become(
    told: int,
    script: str,
    arguments: list[str],
    folder: str,
    plan: list[Any] | None,
    environment: dict[str, str | None],
    constants: dict[str, Any],
) -> None:
    """Turn this process into one that has just been started with the script."""
    os.setsid()
    os.chdir(folder)
    printed = os.open("printed.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (printed, 1), (printed, 2)):
        os.dup2(source, target)
    sys.argv = [script, *arguments]
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    for name, constant in constants.items():
        module, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(module), attribute, constant)
    if plan is not None:
        watch(Spy(Plan(*plan), told))


class Spy:
    """Wraps what a run goes through; reports when the plan's phase begins, and waits for death."""

    def __init__(self, plan: Plan, told: int):
        self.plan, self.told, self.seen = plan, told, 0
        self.when = ""
        """`last ` while the last checkpoint is written, after which none could fix it."""

    def wrap(self, kind: str, owner: Any, name: str, phase: Any, mess: Any = None) -> None:
        """Wrap a function of a module or class: die `during` it, `before` it or `after` it.

        The phase is a name, or a function of the arguments that returns one. `mess` makes a mess of what
        is about to be written, or was, before the death.
        """
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            here = phase if isinstance(phase, str) else phase(*args)
            coming = here is not None and self.when + here == self.plan.phase
            self.seen += coming
            if not coming or self.seen != self.plan.occurrence:
                return original(*args, **kwargs)
            if kind == "during":
                os.write(self.told, b"at\n")
            if kind != "before":
                original(*args, **kwargs)
            if mess is not None:
                mess(*args)
            if kind != "during":
                os.write(self.told, b"at\n")
            time.sleep(PATIENCE)
            os._exit(99)

        setattr(owner, name, wrapped)


def watch(spy: Spy) -> None:
    """Wrap what a run goes through."""
    import shutil

    from roformer.inference.translate import Translator
    from roformer.pipelines import glue, run
    from roformer.tasks import classification, mlm, translation
    from roformer.training import checkpoint, records
    from roformer.training.checkpoint import Checkpoints
    from roformer.training.loop import Loop
    from roformer.training.tracking import WandbTracker

    save, examples = Loop._save, classification.ClassificationTask

    def noticing(loop: Loop, **options: Any) -> None:
        spy.when = "last " * (loop.state.step == loop.task.training.steps)
        save(loop, **options)
        spy.when = ""

    def half_of(path: Path, text: str) -> None:
        path.with_name(f".{path.name}.partial").write_text(text[: len(text) // 2])

    Loop._save = noticing  # type: ignore[method-assign]
    during = (
        *((module, "prepare", "preparing the text") for module in (mlm, translation)),
        (glue, "prepare", "preparing the text"),
        (run, "open_tracker", "starting the tracker"),
        (Loop, "_step", "step"),
        *((task, "evaluate", "evaluation") for task in (mlm.MaskedLMTask, examples)),
        (translation.TranslationTask, "evaluate", "evaluation"),
        (WandbTracker, "log", "tracker: a row"),
        (WandbTracker, "finish", "tracker: the end"),
        (Checkpoints, "save", "checkpoint"),
        (examples, "write_predictions", "predictions"),
        (run, "keep_only_best", "only the best: during"),
        (translation, "save_average", "averaging"),
        (translation, "translation_scores", "scores"),
        (Translator, "translate_ids", lambda t, _: "beam search" if t.search.beam > 1 else None),
    )
    before = (
        (records, "write_atomically", lambda path, text: f"half of {path.name}", half_of),
        (checkpoint, "complete", "checkpoint: before complete.json"),
        (checkpoint, "_link", lambda link, target: f"link {link.name}: before"),
        (shutil, "rmtree", lambda path, *_: removal(Path(path)), lambda path, *_: thin(path)),
        (run, "keep_only_best", "only the best: before"),
        (Path, "unlink", lambda path, *_: f"unlink {path.name}"),
    )
    after = (
        (records.RunFolder, "log", "half a row", lambda folder, row: cut_line(folder.metrics)),
        (
            *(checkpoint, "save_tensors", lambda _, path: f"checkpoint: half of {path.name}"),
            lambda _, path: cut(path),
        ),
        (
            *(checkpoint, "complete", "checkpoint: half of complete.json"),
            lambda folder: cut(folder / checkpoint.COMPLETE),
        ),
        (checkpoint, "complete", "checkpoint: before it is renamed"),
        (
            *(checkpoint, "_flush"),
            lambda path: "checkpoint: renamed" if path.name == "checkpoints" else None,
        ),
        (Path, "symlink_to", lambda path, _: f"link {path.name.split('.')[1]}: made aside"),
        (
            *(examples, "write_predictions", "half of the predictions"),
            lambda task, run: cut(next((run / "predictions").iterdir())),
        ),
        (
            *(translation, "write_lines", "half of the translations"),
            lambda folder, lines: cut(folder / "test.averaged.txt"),
        ),
    )
    for kind, wrapped in {"during": during, "before": before, "after": after}.items():
        for owner, name, phase, *mess in wrapped:
            spy.wrap(kind, owner, name, phase, *mess)


def removal(path: Path) -> str | None:
    """Name the removal of a folder under checkpoints/."""
    if "checkpoints" not in path.parts or not path.is_dir():
        return None
    average = path.name == ".averaged.removed"
    return "removing the old average" if average else "removing a checkpoint"


def cut(path: Path) -> None:
    """Leave half of a file."""
    os.truncate(path, path.stat().st_size // 2)


def cut_line(path: Path) -> None:
    """Leave a part of a file's last line."""
    text = path.read_text()
    last = len(text.splitlines()[-1])
    os.truncate(path, len(text) - 1 - random.randrange(last))


def thin(folder: Path) -> None:
    """Remove half of a folder's files."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    for path in files[::2]:
        path.unlink()


if __name__ == "__main__":
    serve()
    runpy.run_path(sys.argv[0], run_name="__main__")
