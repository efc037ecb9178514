"""Where metrics go besides metrics.jsonl: the terminal and, if asked for, wandb."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from roformer.config.schema import TrackerConfig

LINE = {
    "train/loss": "loss",
    "valid/mlm_loss": "valid",
    "valid/bits_per_byte": "valid",
    "train/learning_rate": "lr",
    "perf/tokens_per_second": "tok/s",
}
"""What a terminal shows of a row, by which name."""

PROJECT = "roformer"
"""Of wandb, where neither the config nor the environment names one."""
TABLE_ROWS = 100
"""Of predictions and translations that wandb shows; the record has all."""
LONGEST_TAG = 64
"""Characters that wandb takes."""
PATIENCE = 120.0
"""Seconds that a call of wandb may take; the last one uploads what is left."""
PATIENCE_TO_BEGIN = 30.0
"""Seconds until a server that cannot be reached is given up."""


def evaluated(name: str) -> bool:
    """Tell whether a metric is of an evaluation: `valid/…`, or of a task, `mrpc/f1`."""
    return name.partition("/")[0] not in ("step", "train", "perf", "data")


class Tracker(Protocol):
    """A mirror of metrics.jsonl."""

    run_id: str | None

    def log(self, row: dict[str, Any]) -> None: ...
    def finish(self, status: str, summary: dict[str, Any]) -> None: ...


class NoTracker:
    """`tracker=none`."""

    run_id: str | None = None

    def log(self, row: dict[str, Any]) -> None:
        pass

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        pass


class WandbTracker:
    """wandb, online when logged in, else offline; the axis of every chart is `global_step`.

    A run's group is its configuration, so that seeds stand together; its job type is the pipeline. Of
    the environment, WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE (unless the config has them), WANDB_NAME,
    WANDB_RUN_GROUP, WANDB_JOB_TYPE and WANDB_DIR replace what is chosen here, and WANDB_TAGS are added.

    `step=` is never passed: wandb drops rows whose step went back, as it does after a resume.
    The work is done by a service, another process. When that is gone calls raise, and when it hangs
    they never return: then wandb is put aside, with one line, and the training goes on.
    """

    def __init__(
        self,
        config: TrackerConfig,
        folder: Path,
        name: str,
        content: dict[str, Any],
        run_id: str | None,
    ):
        import wandb

        mode, why = _mode(config)
        given = os.environ.get

        def begin(mode: Any) -> Any:
            return wandb.init(
                project=config.project or given("WANDB_PROJECT") or PROJECT,
                entity=config.entity or given("WANDB_ENTITY") or None,
                name=given("WANDB_NAME") or name,
                # Offline parts of one run cannot share an id: a later one would replace the first.
                id=run_id if mode == "online" else None,
                resume="allow" if mode == "online" else None,
                group=given("WANDB_RUN_GROUP") or name.removesuffix(f"-s{content.get('seed')}"),
                job_type=given("WANDB_JOB_TYPE") or folder.parent.name,
                tags=tags_of(content, given("WANDB_TAGS") or ""),
                config=content,
                dir=given("WANDB_DIR") or folder,
                mode=mode,
                settings=wandb.Settings(silent=True, console="off", init_timeout=PATIENCE_TO_BEGIN),
            )

        try:
            self.run = begin(mode)
        except Exception as error:
            if mode != "online":
                raise
            mode, why = "offline", f" (it could not go online: {type(error).__name__})"
            self.run = begin(mode)
        if mode == "offline":
            where = os.path.relpath(Path(self.run.dir).parent)
            print(f"wandb is offline{why}: wandb sync {where} sends this run later", flush=True)
        self.folder, self.run_id = folder, self.run.id
        self._aside = False
        self._try(lambda: self.run.define_metric("global_step", hidden=True))
        for metric in (*LINE, "*"):
            self._try(partial(self.run.define_metric, metric, step_metric="global_step"))

    def log(self, row: dict[str, Any]) -> None:
        named = {"global_step" if key == "step" else key: value for key, value in row.items()}
        self._try(lambda: self.run.log(named))

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        if status in ("done", "degenerate"):
            self._try(lambda: self._log_tables(summary.get("steps")))
        self._try(lambda: self.run.summary.update({"status": status, **summary.get("metrics", {})}))
        self._try(lambda: self.run.finish(exit_code=0 if status == "done" else 1))

    def _log_tables(self, step: int | None) -> None:
        import wandb

        for name, columns, rows in tables_of(self.folder):
            self.run.log({"global_step": step, name: wandb.Table(columns=[*columns], data=rows)})

    def _try(self, call: Callable[[], object]) -> None:
        """Make a call of wandb's, unless one failed before."""
        if self._aside:
            return
        try:
            within(PATIENCE, call)
        except Exception as error:  # whatever it is, the training does not depend on it
            self._aside = True
            _tell(
                f"wandb stopped answering ({type(error).__name__}): "
                "metrics go on in metrics.jsonl alone"
            )
            _let_go()


def within(seconds: float, call: Callable[[], object]) -> None:
    """Make a call that may never return, and wait for it.

    Raises:
        TimeoutError: it took longer; it is left to itself.
        Exception: what the call raises.
    """
    done = Future[None]()

    def work() -> None:
        try:
            call()
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=work, daemon=True).start()
    done.result(seconds)


def _let_go() -> None:
    """Keep wandb from waiting for its service when this process ends, or printing a traceback."""
    from wandb.sdk import wandb_setup

    # Not public; where it is called otherwise, the exit is slow or noisy, and no more than that.
    connection = getattr(wandb_setup.singleton(), "_connection", None)
    (getattr(connection, "_cleanup", None) or (lambda: None))()


def _mode(config: TrackerConfig) -> tuple[str, str]:
    """Return wandb's mode and, where nobody asked for offline, why it is, in brackets."""
    mode = os.environ.get("WANDB_MODE") or "auto" if config.mode == "auto" else config.mode
    if mode != "auto":
        return mode, ""
    import wandb

    try:
        return ("online", "") if wandb.login(prompt=False) else ("offline", " (not logged in)")
    except Exception as error:  # it tells of a wrong key and of no network by many types
        return "offline", f" (it could not log in: {type(error).__name__})"


def tags_of(content: dict[str, Any], more: str) -> list[str]:
    """Return a run's tags: model, position, recipe, data, tasks, and those named with commas in `more`."""
    model = content.get("model", {})
    ours = [model.get("name"), model.get("position", {}).get("kind"), content.get("recipe")]
    ours += [content.get("data", {}).get("kind"), *content.get("task", ())]
    tags = [str(tag).strip()[:LONGEST_TAG] for tag in (*ours, *more.split(",")) if tag]
    return list(dict.fromkeys(filter(None, tags)))


def tables_of(folder: Path) -> Iterator[tuple[str, list[str], list[list[Any]]]]:
    """Yield name, columns and the first rows of what a run has predicted and translated."""
    for file in sorted((folder / "predictions").glob("*.tsv")):
        columns, *rows = (line.split("\t") for line in _first_lines(file, TABLE_ROWS + 1))
        texts = [column in ("index", "label", "prediction") for column in columns]
        yield (
            f"predictions/{file.stem}",
            columns,
            [
                [cell if text else float(cell) for cell, text in zip(row, texts, strict=True)]
                for row in rows
            ],
        )
    translated = folder / "translations"
    if translated.is_dir():
        names = ("source", "reference", "averaged")
        lines = [_first_lines(translated / f"test.{name}.txt", TABLE_ROWS) for name in names]
        rows = [list(row) for row in zip(*lines, strict=True)]
        yield "translations/test", ["source", "reference", "translation"], rows


def _first_lines(file: Path, count: int) -> list[str]:
    with file.open(encoding="utf-8", newline="\n") as stream:
        return [line.removesuffix("\n") for line in islice(stream, count)]


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def open_tracker(
    config: TrackerConfig, folder: Path, name: str, content: dict[str, Any], run_id: str | None
) -> Tracker:
    """Return the configured tracker. Call on rank 0 only.

    Args:
        config: which, and where to.
        folder: the run's folder; offline data goes below it.
        name: the run's name.
        content: the resolved config, plain.
        run_id: of the run being resumed, else None.
    """
    if config.kind == "none":
        return NoTracker()
    try:
        return WandbTracker(config, folder, name, content, run_id)
    except ImportError as error:
        _tell(
            f"wandb cannot be imported ({error}): pip install wandb, or leave it out with "
            "tracker=none; metrics.jsonl has everything"
        )
        return NoTracker()
    except Exception as error:  # a mirror that cannot be had is no reason not to train
        _tell(f"wandb could not start ({type(error).__name__}): metrics.jsonl has everything")
        return NoTracker()


class Progress:
    """A bar with ETA, loss and throughput on a terminal; plain lines when piped.

    Args:
        total: updates.
        done: updates made before, when resumed.
        shown: false with `runtime.progress=false`, and on every rank but the first.
        first: whether this is the first rank, which says what must be heard all the same.
    """

    def __init__(self, total: int, done: int, *, shown: bool, first: bool):
        self.total, self.shown, self.first = total, shown and first, first
        self.shown_last: dict[str, str] = {}
        self.bar = tqdm(
            total=total,
            initial=done,
            unit="step",
            dynamic_ncols=True,
            disable=not (self.shown and sys.stderr.isatty()),
        )

    def step(self) -> None:
        self.bar.update()

    def report(self, row: dict[str, Any], seconds_left: float) -> None:
        """Show the metrics of one log step."""
        if not self.bar.disable:
            self.shown_last |= {LINE[k]: f"{v:.4g}" for k, v in row.items() if k in LINE}
            self.bar.set_postfix(self.shown_last)
        elif self.shown:
            shown = {name: value for name, value in row.items() if name in LINE or evaluated(name)}
            metrics = "  ".join(f"{LINE.get(k, k)} {v:.5g}" for k, v in shown.items())
            left = f"{int(seconds_left) // 60}:{int(seconds_left) % 60:02d}"
            print(f"step {row['step']}/{self.total}  {metrics}  left {left}", flush=True)

    def say(self, line: str) -> None:
        """Print a line without tearing the bar, however little is to be shown."""
        if self.first:
            tqdm.write(line, file=sys.stderr if not self.bar.disable else sys.stdout)

    def close(self) -> None:
        self.bar.close()
