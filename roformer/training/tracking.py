"""Destinations of metrics in addition to metrics.jsonl: the terminal, wandb, TensorBoard, trackio."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from roformer.config.schema import TrackerConfig
from roformer.training.records import read_metrics

LINE = {
    "valid/mlm_loss": "valid",
    "valid/loss": "valid",
    "valid/bits_per_byte": "valid",
    "train/loss": "loss",
    "perf/tokens_per_second": "tok/s",
    "train/learning_rate": "lr",
}
"""Metrics that a terminal shows, with the names it shows them by; a narrow one cuts off the last."""
PROJECT = "roformer"
"""Project of a tracker where neither the config nor the environment names one."""
TABLE_ROWS = 100
"""Rows of the predictions and translations that wandb shows; the record has all."""
LONGEST_TAG = 64
"""Characters that wandb takes."""


class NoTracker:
    """`tracker=none`, and the base class of the trackers, which mirror metrics.jsonl.

    The first failure of a tracker prints one line and disables it.
    """

    kind = "none"
    run_id: str | None = None
    """The id under which a resumed run continues in the tracker; checkpoints keep it."""
    failed = False

    def log(self, row: dict[str, Any]) -> None:
        """Mirror a row of metrics.jsonl."""
        values = {name: value for name, value in row.items() if name != "step"}
        self._try(lambda: self._log(values, row["step"]))

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        """Mirror the summary and close."""
        self._try(lambda: self._finish(status, summary))

    def _log(self, values: dict[str, Any], step: int) -> None: ...

    def _finish(self, status: str, summary: dict[str, Any]) -> None: ...

    def _try(self, call: Callable[[], object]) -> None:
        if self.failed:
            return
        try:
            call()
        except Exception as error:  # training does not depend on a tracker
            self.failed = True
            reason = f"failed ({type(error).__name__}) and is off from here"
            _warn(f"{self.kind} {reason}; metrics.jsonl has everything")


class WandbTracker(NoTracker):
    """wandb, online when logged in, else offline; the x-axis of every chart is `global_step`.

    A run's group is its configuration without the seed; its job type is the pipeline. The environment
    variables WANDB_PROJECT, WANDB_ENTITY and WANDB_MODE (unless the config has them), WANDB_NAME,
    WANDB_RUN_GROUP, WANDB_JOB_TYPE and WANDB_DIR override what is chosen here, and WANDB_TAGS are added.
    """

    kind = "wandb"

    def __init__(
        self, config: TrackerConfig, folder: Path, name: str, content: Any, run_id: str | None
    ):
        import wandb

        given = os.environ.get
        self.folder = folder

        def start(mode: Any) -> Any:
            # Offline, a later part of a run would replace the first.
            resumed: Any = {"id": run_id, "resume": "allow"} if mode == "online" else {}
            return wandb.init(
                project=config.project or given("WANDB_PROJECT") or PROJECT,
                entity=config.entity or given("WANDB_ENTITY") or None,
                name=given("WANDB_NAME") or name,
                group=given("WANDB_RUN_GROUP") or group_of(name, content),
                job_type=given("WANDB_JOB_TYPE") or folder.parent.name,
                dir=given("WANDB_DIR") or folder,
                tags=tags_of(content, given("WANDB_TAGS") or ""),
                config=content,
                mode=mode,
                settings=wandb.Settings(silent=True, console="off", init_timeout=30),
                **resumed,
            )

        why = ""
        mode: str = config.mode if config.mode != "auto" else given("WANDB_MODE") or "auto"
        try:
            if mode == "auto" and not wandb.login(prompt=False):
                mode, why = "offline", " (not logged in)"
            mode = "online" if mode == "auto" else mode
            self.run = start(mode)
        except Exception as error:  # a wrong key and a missing network raise many types
            if mode not in ("auto", "online"):
                raise
            mode, why = "offline", f" (it could not go online: {type(error).__name__})"
            self.run = start(mode)
        if mode == "offline" and content.get("runtime", {}).get("progress", True):
            where = os.path.relpath(Path(self.run.dir).parent)
            print(f"wandb is offline{why}: wandb sync {where} sends this run later", flush=True)
        self.run_id = self.run.id
        self.run.define_metric("global_step", hidden=True)
        for metric in (*LINE, "*"):
            self.run.define_metric(metric, step_metric="global_step")

    def _log(self, values: dict[str, Any], step: int | None) -> None:
        # Without `step=`: wandb drops rows whose step decreased, which happens after a resume.
        self.run.log({"global_step": step, **values})

    def _finish(self, status: str, summary: dict[str, Any]) -> None:
        import wandb

        if status in ("done", "degenerate"):
            for name, table in tables_of(self.folder):
                self._log({name: wandb.Table(dataframe=table)}, summary.get("steps"))
        self.run.summary.update({"status": status, **summary.get("metrics", {})})
        self.run.finish(exit_code=0 if status == "done" else 1)


class TensorboardTracker(NoTracker):
    """TensorBoard's event files in `<run>/tensorboard`: `tensorboard --logdir runs` shows all runs."""

    kind = "tensorboard"

    def __init__(
        self, config: TrackerConfig, folder: Path, name: str, content: Any, run_id: str | None
    ):
        from torch.utils.tensorboard import SummaryWriter

        file = folder / "metrics.jsonl"  # absent before the first log step
        done = read_metrics(file) if file.exists() else []
        # Rows after the checkpoint of this start, or all without a checkpoint, are logged again.
        again = (folder / "tensorboard").is_dir()
        purge = (done[-1]["step"] if done else 0) + 1 if again else None
        self.run_id = name
        self.writer = SummaryWriter(folder / "tensorboard", purge_step=purge)
        if not again:
            self.writer.add_text("config", f"<pre>{json.dumps(content, indent=1)}</pre>")

    def _log(self, values: dict[str, Any], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, global_step=step)
        self.writer.flush()

    def _finish(self, status: str, summary: dict[str, Any]) -> None:
        self.writer.close()


class TrackioTracker(NoTracker):
    """trackio, a database on this machine: `trackio show` opens its dashboard."""

    kind = "trackio"

    def __init__(
        self, config: TrackerConfig, folder: Path, name: str, content: Any, run_id: str | None
    ):
        import trackio  # type: ignore[import-not-found,unused-ignore]

        self.run_id = name
        self.run = trackio.init(
            project=config.project or PROJECT,
            name=name,
            group=group_of(name, content),
            config=content,
            resume="allow" if run_id else "never",
            embed=False,
            auto_log_gpu=False,
        )

    def _log(self, values: dict[str, Any], step: int) -> None:
        self.run.log(values, step=step)

    def _finish(self, status: str, summary: dict[str, Any]) -> None:
        self.run.finish()


TRACKERS = {cls.kind: cls for cls in (WandbTracker, TensorboardTracker, TrackioTracker)}


def open_tracker(
    config: TrackerConfig, folder: Path, name: str, content: dict[str, Any], run_id: str | None
) -> NoTracker:
    """Return the configured tracker; if it fails to start, print why and return `NoTracker`."""
    if config.kind == "none":
        return NoTracker()
    try:
        return TRACKERS[config.kind](config, folder, name, content, run_id)
    except ImportError:
        why = f"is not installed: pip install {config.kind}, or leave it out with tracker=none"
    except Exception as error:
        why = f"could not start ({type(error).__name__})"
    _warn(f"{config.kind} {why}; metrics.jsonl has everything")
    return NoTracker()


def group_of(name: str, content: dict[str, Any]) -> str:
    """Return a run's name without its seed."""
    return name.removesuffix(f"-s{content.get('seed')}")


def tags_of(content: dict[str, Any], more: str) -> list[str]:
    """Return a run's tags: model, position, recipe, data, tasks, and those named with commas in `more`."""
    model = content.get("model", {})
    ours = [model.get("name"), model.get("position", {}).get("kind"), content.get("recipe")]
    ours += [content.get("data", {}).get("kind"), *content.get("task", ())]
    tags = [str(tag).strip()[:LONGEST_TAG] for tag in (*ours, *more.split(",")) if tag]
    return list(dict.fromkeys(filter(None, tags)))


def tables_of(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield names and first rows (pandas) of a run's predictions and translations."""
    import pandas as pd

    for file in sorted((folder / "predictions").glob("*.tsv")):
        options = {"sep": "\t", "quoting": 3, "keep_default_na": False, "nrows": TABLE_ROWS}
        yield f"predictions/{file.stem}", pd.read_csv(file, **options)
    if (translated := folder / "translations").is_dir():
        files = {"source": "source", "reference": "reference", "translation": "averaged"}
        columns = {
            column: (translated / f"test.{name}.txt").read_bytes().decode().split("\n")[:-1]
            for column, name in files.items()
        }
        yield "translations/test", pd.DataFrame(columns).head(TABLE_ROWS)


def _warn(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Progress:
    """A bar with ETA, loss and throughput on a terminal; plain lines when piped.

    Earlier starts made `done` of the `total` steps. Only the `first` rank prints. The monitored metric
    comes first.
    """

    def __init__(self, total: int, done: int, shown: bool, first: bool, monitor: str):
        self.total, self.shown, self.first = total, shown and first, first
        self.names = {monitor: LINE.get(monitor, monitor)} | LINE
        hidden = not (self.shown and sys.stderr.isatty())
        # Without tqdm's rate, the line fits a terminal of 80 columns.
        shape = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
        self.bar = tqdm(
            total=total, initial=done, bar_format=shape, dynamic_ncols=True, disable=hidden
        )
        self._known: dict[str, float] = {}

    def step(self) -> None:
        self.bar.update()

    def report(self, row: dict[str, Any], seconds_left: float) -> None:
        """Show the metrics of one log step."""
        if not self.bar.disable:
            self._known |= row
            self.bar.set_postfix(
                {
                    name: f"{self._known[k]:.4g}"
                    for k, name in self.names.items()
                    if k in self._known
                }
            )
        elif self.shown:
            hidden = ("step", "train", "perf", "data")  # except the metrics in LINE
            metrics = "  ".join(
                f"{LINE.get(name, name)} {value:.5g}"
                for name, value in row.items()
                if name in LINE or name.partition("/")[0] not in hidden
            )
            left = f"{int(seconds_left) // 60}:{int(seconds_left) % 60:02d}"
            print(f"step {row['step']}/{self.total}  {metrics}  left {left}", flush=True)

    def say(self, line: str) -> None:
        """Print a line without tearing the bar, whether or not progress is shown."""
        if self.first:
            tqdm.write(line, file=sys.stdout if self.shown and self.bar.disable else sys.stderr)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Say in the bar why it does not move."""
        self.bar.set_description("evaluating")
        try:
            yield
        finally:
            self.bar.set_description()

    def close(self) -> None:
        self.bar.close()
