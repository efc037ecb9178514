"""Where metrics go besides metrics.jsonl: the terminal and, if asked for, wandb."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from roformer.config.schema import TrackerConfig

LINE = {
    "train/loss": "loss",
    "valid/mlm_loss": "valid",
    "train/learning_rate": "lr",
    "perf/tokens_per_second": "tok/s",
}
"""What a terminal shows of a row, by which name."""


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

    `step=` is never passed: wandb drops rows whose step went back, as it does after a resume.
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

        mode = config.mode
        if mode == "auto":
            mode = "online" if _logged_in() else "offline"
        self.run = wandb.init(
            project=config.project,
            entity=config.entity,
            name=name,
            id=run_id,
            resume="allow" if mode == "online" else None,
            config=content,
            dir=folder,
            mode=os.environ.get("WANDB_MODE", mode),  # type: ignore[arg-type]
            settings=wandb.Settings(silent=True, console="off"),
        )
        self.run_id: str | None = self.run.id
        self.run.define_metric("global_step")
        for section in ("train", "valid", "perf", "data"):
            self.run.define_metric(f"{section}/*", step_metric="global_step")

    def log(self, row: dict[str, Any]) -> None:
        self.run.log({"global_step" if key == "step" else key: value for key, value in row.items()})

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        self.run.summary.update({"status": status, **summary.get("metrics", {})})
        self.run.finish(exit_code=0 if status == "done" else 1)


def _logged_in() -> bool:
    import wandb

    return bool(wandb.login(prompt=False))


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
    return WandbTracker(config, folder, name, content, run_id)


class Progress:
    """A bar with ETA, loss and throughput on a terminal; plain lines when piped.

    Args:
        total: updates.
        done: updates made before, when resumed.
        shown: false on every rank but the first, and with `runtime.progress=false`.
    """

    def __init__(self, total: int, done: int, *, shown: bool):
        self.total, self.shown = total, shown
        self.shown_last: dict[str, str] = {}
        self.bar = tqdm(
            total=total,
            initial=done,
            unit="step",
            dynamic_ncols=True,
            disable=not (shown and sys.stderr.isatty()),
        )

    def step(self) -> None:
        self.bar.update()

    def report(self, row: dict[str, Any], seconds_left: float) -> None:
        """Show the metrics of one log step."""
        if not self.bar.disable:
            self.shown_last |= {LINE[k]: f"{v:.4g}" for k, v in row.items() if k in LINE}
            self.bar.set_postfix(self.shown_last)
        elif self.shown:
            shown = {name: value for name, value in row.items() if name in LINE or "valid/" in name}
            metrics = "  ".join(f"{LINE.get(k, k)} {v:.5g}" for k, v in shown.items())
            left = f"{int(seconds_left) // 60}:{int(seconds_left) % 60:02d}"
            print(f"step {row['step']}/{self.total}  {metrics}  left {left}", flush=True)

    def say(self, line: str) -> None:
        """Print a line without tearing the bar."""
        if self.shown:
            tqdm.write(line, file=sys.stderr if not self.bar.disable else sys.stdout)

    def close(self) -> None:
        self.bar.close()
