"""The grid of `make glue`: every (task, learning rate, seed) is one fine-tuning, done once.

weights   ← init_from; `auto`: the pre-training run of this model, made first if need be
tasks     prepared once each
cells     tasks × learning rates × seeds, the longest first; finished ones are kept
run them  one after another over all processes, or side by side, each in a process of its own
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from roformer.config.build import build, plain, run_id
from roformer.config.glue import FinetuneConfig, GlueConfig
from roformer.data.examples import prepare_task
from roformer.errors import Diverged, InputError
from roformer.inference.start import SCRATCH
from roformer.pipelines.run import AUTO, changed, pretraining_of, resolve, train, with_pretraining
from roformer.tasks.classification import start_of
from roformer.training.process import usable_cores
from roformer.training.ranks import first_process, say
from roformer.training.records import RunFolder

GRID_KEYS = ("pretraining", "jobs", "keep_weights")
"""What a grid has and its cells have not."""
Cell = FinetuneConfig
Outcome = dict[str, Any]


def glue(config: GlueConfig) -> list[Path]:
    """Run the grid; return the folders of its cells, those of failed ones too.

    Raises:
        InputError: a mistake in the input. What is done is kept.
    """
    config = with_pretraining(resolve(config))
    cells = list(cells_of(config))
    start = start_of(cells[0])
    begun = {"init_from": start.name, "init_revision": start.revision or config.init_revision}
    cells = [changed(cell, **begun, model=plain(start.model)) for cell in cells]
    say(f"{start.model.name} ({start.model.position.kind}, {start.model.size}) from {start.name}")
    sizes: dict[str, int] = {}
    for name, cell in {cell.task_name: cell for cell in cells}.items():
        # A fresh model's tokenizer is made of its own task's texts.
        own = start_of(cell) if start.name == SCRATCH else start
        data = prepare_task(
            name,
            config.task[name],
            config.data,
            own.tokenizer,
            config.runtime.cache_dir,
            progress=config.runtime.progress and first_process(),
        )
        sizes[name] = data.manifest["tokens"]["train"]
    cells.sort(key=lambda cell: -sizes[cell.task_name])
    wanted = config.jobs or default_jobs(config.runtime.device)
    jobs = 1 if "WORLD_SIZE" in os.environ else min(wanted, len(cells))
    outcomes = side_by_side(cells, jobs) if jobs > 1 else one_by_one(cells)
    report = Progress(len(cells), shown=config.runtime.progress and first_process())
    folders = []
    with report:
        for cell, outcome in outcomes:
            report.finished(cell, outcome)
            folders.append(Path(config.runtime.runs_dir) / "glue" / outcome["run_id"])
    if config.keep_weights == "selected" and first_process():
        forget_weights(folders)
    return sorted(folders)


def folders_of(config: GlueConfig) -> list[Path]:
    """Return the run folders that a grid fills."""
    config = resolve(config)
    if config.init_from == AUTO:
        config = changed(config, init_from=run_id(resolve(pretraining_of(config))))
    root = Path(config.runtime.runs_dir) / "glue"
    return sorted(root / run_id(cell) for cell in cells_of(config))


def cells_of(config: GlueConfig) -> Iterator[Cell]:
    """Yield the product of tasks, learning rates and seeds."""
    content = {key: value for key, value in plain(config).items() if key not in GRID_KEYS}
    grid = itertools.product(config.task, config.optimizer.learning_rate, config.seed)
    for task, rate, seed in grid:
        one = {"task": {task: content["task"][task]}, "seed": seed}
        optimizer = content["optimizer"] | {"learning_rate": rate}
        yield build(FinetuneConfig, content | one | {"optimizer": optimizer})


def default_jobs(device: str) -> int:
    """Return how many cells run side by side: one a GPU, or one a core."""
    return {"cpu": len(usable_cores()), "cuda": torch.cuda.device_count()}.get(device, 1)


# --- running -------------------------------------------------------------------------------------


def attempt(cell: Cell) -> Outcome:
    """Run a cell; one that diverges is recorded as failed and does not end the grid."""
    try:
        return train("glue", cell)
    except Diverged:  # the first process has written the summary; the others may be faster
        folder = RunFolder(Path(cell.runtime.runs_dir) / "glue" / run_id(resolve(cell)))
        return folder.summary() or {"run_id": folder.path.name, "status": "failed"}


def one_by_one(cells: list[Cell]) -> Iterator[tuple[Cell, Outcome]]:
    """Run cells in this process, over all processes if there are several."""
    for cell in cells:
        yield cell, attempt(cell)


def side_by_side(cells: list[Cell], jobs: int) -> Iterator[tuple[Cell, Outcome]]:
    """Run cells in `jobs` processes, each with a GPU or a share of the cores of its own."""
    threads = cells[0].runtime.threads or max(1, len(usable_cores()) // jobs)
    quiet = {**plain(cells[0])["runtime"], "progress": False, "threads": threads}
    spawn = multiprocessing.get_context("spawn")  # a forked CUDA or thread pool is not usable
    places = spawn.Queue()
    for place in range(jobs):
        places.put(place)
    stopping = spawn.Event()
    pool = ProcessPoolExecutor(jobs, spawn, initializer=settle, initargs=(places, stopping))
    with pool, ended_in_order(pool, stopping):
        with deaf_to_ctrl_c():
            running = {
                pool.submit(in_silence, changed(cell, runtime=quiet)): cell for cell in cells
            }
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        except BrokenProcessPool as error:
            raise InputError(
                "a process that ran a cell was killed, by hand or for its memory: start the same "
                "command again, with fewer jobs= if it was the memory; finished cells are kept"
            ) from error


def settle(places: Any, stopping: Any) -> None:
    """Give a fresh process its GPU, and end it when its parent is gone."""
    global _stopping
    _stopping = stopping
    threading.Thread(target=end_with_parent, daemon=True).start()
    place = places.get()
    if (count := torch.cuda.device_count()) > 1:  # CUDA is not in use yet, so the choice counts
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        devices = visible.split(",") if visible else [str(device) for device in range(count)]
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[place % count]


def end_with_parent() -> None:
    """Wait until the parent is gone; then end this process, which saves a checkpoint if it trains."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


_stopping: Any = None
"""In a process that runs cells: set when it must take no other one."""


def in_silence(cell: Cell) -> Outcome:
    """Run a cell without its lines: the parent tells of it in one."""
    if _stopping.is_set():
        raise SystemExit(1)
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            return attempt(cell)
    except SystemExit:  # it saved a checkpoint
        _stopping.set()
        raise
    finally:
        parent = multiprocessing.parent_process()
        # The signal of `end_with_parent` may have come to a training past its last update.
        if parent is None or not parent.is_alive():
            os._exit(1)  # nobody is left to hand a result to, or to get a cell from


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Start processes that a terminal's Ctrl-C does not reach, from their first import on.

    It goes to all of a group, wherever each one is; the parent tells them in order (`ended_in_order`).
    What comes meanwhile reaches the parent afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def ended_in_order(pool: ProcessPoolExecutor, stopping: Any) -> Iterator[None]:
    """On SIGTERM, Ctrl-C or an error start no more cells and let the running ones save a checkpoint."""

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except BaseException:
        stopping.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


class Progress:
    """A bar over the cells on a terminal, a line a cell when piped."""

    def __init__(self, total: int, *, shown: bool):
        self.total, self.shown, self.done = total, shown, 0
        self.began = time.monotonic()
        self.bar = tqdm(
            total=total,
            unit="cell",
            dynamic_ncols=True,
            disable=not (shown and sys.stderr.isatty()),
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.close()

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Tell of a cell that is done."""
        self.done += 1
        self.bar.update()
        if not self.shown:
            return
        left = (time.monotonic() - self.began) * (self.total - self.done) / self.done
        metrics = {
            k: v for k, v in outcome.get("metrics", {}).items() if k.startswith(cell.task_name)
        }
        shown = "  ".join(
            f"{name} {'NaN' if value is None else f'{value:.4f}'}"
            for name, value in metrics.items()
            if not name.endswith("/constant")
        )
        status = "" if outcome["status"] == "done" else f"  [{outcome['status']}]"
        tqdm.write(
            f"{self.done}/{self.total}  {cell.task_name} lr {cell.optimizer.learning_rate:g} seed "
            f"{cell.seed}: {shown}{status}  ({outcome.get('wall_seconds', 0):.0f} s)  "
            f"left {int(left) // 60}:{int(left) % 60:02d}"
        )
        sys.stdout.flush()


def forget_weights(folders: list[Path]) -> None:
    """Keep the weights of each task's best cell alone."""
    best: dict[str, tuple[float, Path]] = {}
    for folder in folders:
        summary = RunFolder(folder).summary()
        if summary is None or "task" not in summary:
            continue
        value = summary["best"]["metrics"].get(summary["headline"])
        rank = float("-inf") if value is None else value
        if summary["task"] not in best or rank > best[summary["task"]][0]:
            best[summary["task"]] = (rank, folder)
    kept = {folder for _, folder in best.values()}
    for folder in folders:
        if folder not in kept and RunFolder(folder).summary() is not None:
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
