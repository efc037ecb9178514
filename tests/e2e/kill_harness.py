"""Kill the real scripts where it hurts.

The process of a script wraps functions before it begins (replaces none), so that it can report over a
pipe that it has reached a certain phase: inside a step, between two files of a checkpoint, in half a
line of metrics.jsonl. There it is killed from outside, at once or after a while; at the end of the
phase it waits for its death.
"""

import multiprocessing
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tests.scripts import Script

PATIENCE = 120
"""Seconds after which a child that nobody killed gives up."""


class Plan(NamedTuple):
    """The place where a child dies: `delay` seconds into the phase's `occurrence`-th occurrence."""

    phase: str
    occurrence: int = 1
    delay: float = 0.0


class PlannedScript(Script):
    """A script that reports when it reaches the place of a plan, and waits there."""

    def __init__(self, plan: Plan, *command: Any, **options: Any):
        self._reports, told = multiprocessing.Pipe(duplex=False)
        super().__init__(*command, before=partial(watch, plan, told), **options)
        told.close()

    def reached(self) -> bool:
        """Wait for the report; return False if the script ended without one."""
        try:
            return bool(self._reports.recv())
        except EOFError:
            return False


def kill(plan: Plan, *command: Any, **options: Any) -> bool:
    """Start a script and kill it as planned; return False if it got through."""
    script = PlannedScript(plan, *command, **options)
    if reached := script.reached():
        time.sleep(plan.delay)
        script.process.kill()
    done = script.end()
    assert done.returncode == (-signal.SIGKILL if reached else 0), done
    return reached


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return found


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


class Spy:
    """Wraps what a run goes through; reports when the plan's phase begins, and waits for death."""

    def __init__(self, plan: Plan, told: Connection):
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
                self.told.send(True)
            if kind != "before":
                original(*args, **kwargs)
            if mess is not None:
                mess(*args)
            if kind != "during":
                self.told.send(True)
            time.sleep(PATIENCE)
            os._exit(99)

        setattr(owner, name, wrapped)


def watch(plan: Plan, told: Connection) -> None:
    """Wrap what a run goes through."""
    import shutil

    from roformer.inference.translate import Translator
    from roformer.pipelines import glue, run
    from roformer.tasks import classification, mlm, translation
    from roformer.training import checkpoint, records
    from roformer.training.checkpoint import Checkpoints
    from roformer.training.loop import Loop
    from roformer.training.tracking import WandbTracker

    spy = Spy(plan, told)
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
