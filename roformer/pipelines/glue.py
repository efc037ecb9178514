"""The grid of `make glue`: every (task, learning rate, seed) is one fine-tuning, done once.

weights   ← init_from; `auto`: the pre-training run of this model, made first if need be
tasks     prepared once each
cells     tasks × learning rates × seeds, the longest first; finished ones are kept
run them  one after another over all processes, or in parallel, each in a separate process
"""

from __future__ import annotations

import gc
import itertools
import math
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from roformer.config.build import build, hints_of, plain, run_id
from roformer.config.glue import FinetuneConfig, GlueConfig
from roformer.config.start import AUTO, SCRATCH
from roformer.errors import Diverged, InputError
from roformer.pipelines.grid import Job, Worker, clock, run_jobs
from roformer.pipelines.run import (
    changed,
    folder_of,
    pretraining_of,
    resolve,
    train,
)
from roformer.tasks.classification import prepare, start_of, with_start
from roformer.training.distributed import first_process, process_count, say
from roformer.training.process import usable_cores
from roformer.training.records import RunFolder

WORKER_IMPORTS = ("roformer.evaluation.glue_metrics", "wandb.sdk.launch.inputs.internal")
"""Modules that a cell imports only when it runs, which takes 4 seconds of a core."""


def glue(config: GlueConfig) -> list[Path]:
    """Run the grid; return the folders of its cells, including diverged ones.

    Cells that failed are named in an InputError at the end. Finished cells are kept.
    """
    config = resolve(config)
    if config.init_from == AUTO:
        config = after(config, train("pretrain", pretraining_of(config))["run_id"])
    cells = list(cells_of(config))
    start = start_of(cells[0])
    cells = [with_start(cell, start) for cell in cells]
    position, shown = start.model.position.name, config.runtime.progress
    say(f"{start.model.name} ({position}, {start.model.size}) from {start.name}", shown)
    progress = shown and first_process()
    sizes: dict[str, int] = {}
    for name, cell in {cell.task_name: cell for cell in cells}.items():
        # A fresh model's tokenizer is trained on the texts of the cell's task.
        own = start_of(cell) if start.name == SCRATCH else start
        sizes[name] = prepare(cell, own.tokenizer).manifest["tokens"]["train"]
    cells.sort(key=lambda cell: -sizes[cell.task_name])
    places = {"cpu": len(usable_cores()), "cuda": torch.cuda.device_count()}
    wanted = config.jobs or places.get(config.runtime.device, 1)
    run_cells(cells, 1 if process_count() > 1 else min(wanted, len(cells)), progress)
    folders = sorted(folder_of("glue", cell) for cell in cells)
    if config.keep_weights == "selected" and first_process():
        for best in forget_weights(folders):
            say(f"best run, weights kept: {best}", shown)
    return folders


def folders_of(config: GlueConfig) -> list[Path]:
    """Return the run folders that a grid fills."""
    config = resolve(config)
    if config.init_from == AUTO:
        config = after(config, run_id(resolve(pretraining_of(config))))
    return sorted(folder_of("glue", cell) for cell in cells_of(config))


def after(config: GlueConfig, pretraining: str) -> GlueConfig:
    """Return a grid on a pre-training run, which has the tokenizer that the grid asks for."""
    return changed(config, init_from=pretraining, tokenizer=None)


def cells_of(config: GlueConfig) -> Iterator[FinetuneConfig]:
    """Yield the product of tasks, learning rates and seeds."""
    shared = hints_of(FinetuneConfig)
    content = {key: value for key, value in plain(config).items() if key in shared}
    grid = itertools.product(config.task, config.optimizer.learning_rate, config.seed)
    for task, rate, seed in grid:
        one = {"task": {task: content["task"][task]}, "seed": seed}
        optimizer = content["optimizer"] | {"learning_rate": rate}
        yield build(FinetuneConfig, content | one | {"optimizer": optimizer})


def run_cells(cells: list[FinetuneConfig], jobs: int, progress: bool) -> None:
    """Run cells side by side in workers, or one after another in this process and over all ranks."""
    titles = [
        f"{cell.task_name} lr {cell.optimizer.learning_rate:.12g} seed {cell.seed}"
        for cell in cells
    ]
    waiting, failed, began = dict(zip(titles, cells, strict=True)), [], time.monotonic()

    def ended(title: str, problem: object = None) -> None:
        cell = waiting.pop(title)
        if problem:
            failed.append(f"{title} ({problem})")
        elif progress:
            done = len(cells) - len(waiting)
            left = (time.monotonic() - began) * len(waiting) / done
            tqdm.write(f"{done}/{len(cells)}  {title}: {outcome(cell)}  left {clock(left)}")
            sys.stdout.flush()

    if jobs == 1:
        for title, cell in zip(titles, cells, strict=True):
            try:
                attempt(cell)
                ended(title)
            except InputError as error:
                if len(cells) == 1 or process_count() > 1:  # the other ranks would wait
                    raise
                ended(title, error)
    else:
        # Memory that a pre-training of this process still holds on a GPU is missing to a cell there.
        gc.collect()
        torch.cuda.empty_cache()
        Worker.start_server(WORKER_IMPORTS)
        threads = cells[0].runtime.threads or max(1, len(usable_cores()) // jobs)
        quiet = plain(cells[0])["runtime"] | {"progress": False, "threads": threads}

        def start(cell: FinetuneConfig, place: int) -> Worker:
            return Worker(place, attempt, changed(cell, runtime=quiet))

        found = [
            Job(title, partial(start, cell)) for title, cell in zip(titles, cells, strict=True)
        ]
        run_jobs(
            found,
            jobs,
            lambda job: ended(job.title, job.code and f"code {job.code}"),
            progress=progress,
        )
    if failed:
        raise InputError(
            f"{len(failed)} of {len(cells)} runs failed: {', '.join(failed)}; the same command resumes, "
            "with fewer jobs= if it was the memory"
        )


def outcome(cell: FinetuneConfig) -> str:
    """Return the metrics of a finished cell, what is wrong with it, and how long it took."""
    summary = RunFolder(folder_of("glue", cell)).summary() or {}
    scores = "  ".join(
        f"{name.partition('/')[2]} {'NaN' if value is None else f'{value:.4f}'}"
        for name, value in summary.get("metrics", {}).items()
        if name.startswith(cell.task_name) and not name.endswith("/constant")
    )
    status = "" if summary.get("status") == "done" else f"  [{summary.get('status')}]"
    return f"{scores}{status}  ({summary.get('wall_seconds', 0):.0f} s)"


def attempt(cell: FinetuneConfig) -> None:
    """Run a cell; one that diverges is recorded as failed."""
    with suppress(Diverged):
        train("glue", cell)


def forget_weights(folders: list[Path]) -> list[Path]:
    """Delete the weights of all cells but each task's best, and return the folders of the best.

    Failed cells, and cells whose weights are gone, do not count.
    """
    best: dict[str, tuple[float, Path]] = {}
    finished = {folder: summary for folder in folders if (summary := RunFolder(folder).summary())}
    for folder, summary in finished.items():
        # Another grid with some of the same cells may have chosen before.
        if summary["status"] != "failed" and (folder / "checkpoints").is_dir():
            value = summary["best"]["metrics"].get(summary["headline"])
            rank = -math.inf if value is None else value
            if summary["task"] not in best or rank > best[summary["task"]][0]:
                best[summary["task"]] = (rank, folder)
    kept = sorted(folder for _, folder in best.values())
    for folder, summary in finished.items():
        if folder not in kept and summary.get("task") in best:
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return kept
