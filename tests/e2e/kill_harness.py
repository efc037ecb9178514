"""Start the real scripts often and cheaply, and kill them where it hurts.

Importing everything takes longer than a small run. So one process, the nursery, imports it once and
forks a child for every start; the child runs the script as `python scripts/….py …` would. Before,
it wraps functions (replaces none), so that it can tell over a pipe that it has come to a certain
phase: inside an update, between two files of a checkpoint, in half a line of metrics.jsonl. There it
is killed from outside, at once or after a while; at the end of the phase it waits for its death.
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


Phase = str | Callable[..., str | None]
"""A name, or a function of the wrapped one's arguments that returns it."""
Mess = Callable[..., object]


class Plan(NamedTuple):
    """Where a child dies: in the phase's `occurrence`-th coming, `delay` seconds after it began."""

    phase: str
    occurrence: int = 1
    delay: float = 0.0


IMPORTED = (
    *("accelerate", "datasets", "transformers", "torch._dynamo", "torch.profiler"),
    *("wandb", "wandb.apis.public", "wandb.sdk.launch.utils"),
    *("roformer.pipelines.glue", "roformer.tasks.translation", "roformer.report.glue"),
)
"""What a start would import, also late: wandb imports the most when it begins a run."""


class Nursery:
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

    def __enter__(self) -> Nursery:
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

        Args:
            script: its path.
            arguments: of the command line.
            folder: where it runs, and `printed.txt` gets what it prints.
            plan: where it tells that it has come to, and waits.
            environment: variables that differ; None: not set.
            constants: of modules, by their full name.
        """
        request = {
            "script": script,
            "arguments": arguments,
            "folder": str(folder),
            "plan": plan,
            "environment": environment or {},
            "constants": constants or {},
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self.line())

    def line(self) -> str:
        """Return the next thing that is told: `at`, or `ended` with the exit status."""
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
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            become(request, told)
            return
        os.write(told, f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(told, f"ended {os.waitstatus_to_exitcode(status)}\n".encode())
    raise SystemExit


def become(request: dict[str, Any], told: int) -> None:
    """Turn this process into one that has just been started with the script."""
    os.setsid()
    os.chdir(request["folder"])
    printed = os.open("printed.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (printed, 1), (printed, 2)):
        os.dup2(source, target)
    sys.argv = [request["script"], *request["arguments"]]
    for name, value in request["environment"].items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    for name, value in request["constants"].items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)
    if request["plan"] is not None:
        watch(Spy(Plan(*request["plan"]), told))


class Spy:
    """Knows where its process is to die, and tells when it is there."""

    def __init__(self, plan: Plan, told: int):
        self.plan, self.told = plan, told
        self.seen = 0
        self.when = ""
        """`last ` while the last checkpoint is written, and after it."""

    def due(self, phase: str) -> bool:
        """Tell whether this is the occurrence of the phase to die in."""
        self.seen += self.when + phase == self.plan.phase
        return self.when + phase == self.plan.phase and self.seen == self.plan.occurrence

    def tell(self) -> None:
        os.write(self.told, b"at\n")

    def wait(self) -> None:
        """Wait for death."""
        time.sleep(PATIENCE)
        os._exit(99)

    def during(self, owner: Any, name: str, phase: Phase) -> None:
        """Die during a function, or at its end."""
        self._wrap(owner, name, phase, tell_before=True)

    def before(self, owner: Any, name: str, phase: Phase, mess: Mess | None = None) -> None:
        """Die before a function does anything, having made a mess of what it is about to write."""
        self._wrap(owner, name, phase, mess, call=False)

    def after(self, owner: Any, name: str, phase: Phase, mess: Mess | None = None) -> None:
        """Die when a function has done all, having made a mess of what it wrote."""
        self._wrap(owner, name, phase, mess)

    def _wrap(
        self,
        owner: Any,
        name: str,
        phase: Phase,
        mess: Mess | None = None,
        *,
        tell_before: bool = False,
        call: bool = True,
    ) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            here = phase if isinstance(phase, str) else phase(*args)
            if here is None or not self.due(here):
                return original(*args, **kwargs)
            if tell_before:
                self.tell()
            if call:
                original(*args, **kwargs)
            if mess is not None:
                mess(*args)
            if not tell_before:
                self.tell()
            return self.wait()

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

    for module, prepare in ((mlm, "prepare"), (glue, "prepare_task"), (translation, "prepare")):
        spy.during(module, prepare, "preparing the text")
    spy.during(run, "open_tracker", "starting the tracker")
    spy.during(Loop, "_update", "update")
    for task in (mlm.MaskedLMTask, classification.ClassificationTask, translation.TranslationTask):
        spy.during(task, "evaluate", "evaluation")
    spy.after(records.RunFolder, "log", "half a row", lambda folder, row: cut_line(folder.metrics))
    spy.during(WandbTracker, "log", "tracker: a row")
    spy.during(WandbTracker, "finish", "tracker: the end")
    spy.before(
        records,
        "write_atomically",
        lambda path, text: f"half of {path.name}",
        lambda path, text: path.with_name(f".{path.name}.partial").write_text(
            text[: len(text) // 2]
        ),
    )

    # Of the last checkpoint, after which none is written that could mend it, apart.
    save = Loop._save

    def noticing(loop: Loop, **options: Any) -> None:
        spy.when = "last " * (loop.state.step == loop.settings.training.steps)
        save(loop, **options)
        spy.when = ""

    Loop._save = noticing  # type: ignore[method-assign]
    spy.during(Checkpoints, "save", "checkpoint")
    spy.after(
        checkpoint,
        "save_tensors",
        lambda tensors, path: f"checkpoint: half of {path.name}",
        lambda tensors, path: cut(path),
    )
    spy.before(checkpoint, "complete", "checkpoint: before complete.json")
    spy.after(
        checkpoint,
        "complete",
        "checkpoint: half of complete.json",
        lambda folder: cut(folder / checkpoint.COMPLETE),
    )
    spy.after(checkpoint, "complete", "checkpoint: before it is renamed")
    spy.after(
        checkpoint,
        "_flush",
        lambda path: "checkpoint: renamed" if path.name == "checkpoints" else None,
    )
    spy.before(Checkpoints, "_link", lambda self, name, target: f"link {name}: before")
    spy.after(
        Path,
        "symlink_to",
        lambda path, target: f"link {path.name.split('.')[1]}: made aside",
    )
    spy.before(
        shutil, "rmtree", lambda path, *rest: removal(Path(path)), lambda path, *rest: thin(path)
    )

    spy.during(classification.ClassificationTask, "write_predictions", "predictions")
    spy.after(
        classification.ClassificationTask,
        "write_predictions",
        "half of the predictions",
        lambda task, run: cut(next((run / "predictions").iterdir())),
    )
    spy.before(run, "keep_only_best", "only the best: before")
    spy.during(run, "keep_only_best", "only the best: during")
    spy.before(Path, "unlink", lambda path, *rest: f"unlink {path.name}")
    spy.during(translation, "save_average", "averaging")
    spy.during(
        Translator,
        "translate_ids",
        lambda translator, sources: "beam search" if translator.search.beam > 1 else None,
    )
    spy.during(translation, "translation_scores", "scores")
    spy.after(
        translation,
        "write_lines",
        "half of the translations",
        lambda folder, lines: cut(folder / "test.averaged.txt"),
    )


def removal(path: Path) -> str | None:
    """Name the removal of a folder under checkpoints/."""
    if "checkpoints" not in path.parts or not path.is_dir():
        return None
    return "removing the old average" if path.name == "averaged" else "removing a checkpoint"


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
