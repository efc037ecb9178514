"""The run's own folder: what ran, with what, and its results.

runs/<pipeline>/<run_id>/
  config.yaml    resolved
  env.json       commit, versions, hardware, seed, data fingerprint; later starts
  command.txt
  spikes.jsonl   steps with a loss spike, and their samples; absent without spikes
  metrics.jsonl  the source of truth: one line per log step
  summary.json   written at the end
  checkpoints/
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from roformer import registry
from roformer.errors import InputError, naming
from roformer.json_files import parse_rows, read_object

COMMAND = "ROFORMER_COMMAND"
"""Environment variable that holds the script and arguments as they were typed."""
PACKAGES = (
    *("torch", "transformers", "tokenizers", "datasets"),
    *("accelerate", "hydra-core", "wandb", "numpy"),
)


class RunFolder:
    """One run's folder; only rank 0 writes into it."""

    def __init__(self, path: Path):
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.spikes = path / "spikes.jsonl"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run's lock, a file that names the holder; it ends with the process in any case."""
        from filelock import FileLock, SoftFileLock, Timeout  # reading a record does not need it

        name = f"{self.path.parent.name}-{self.path.name}.lock"
        file = self.path.absolute().parent.parent / ".locks" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            holder = file.read_text(encoding="utf-8").strip() or "another process"
            raise InputError(
                f"{self.path} is being written by {holder}: wait for it or stop it"
            ) from None
        # On a disk without flock the library keeps its own text in the file.
        if not isinstance(lock, SoftFileLock):
            file.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        try:
            yield
        finally:
            file.unlink(missing_ok=True)
            lock.release()

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of a run that ended, else None."""
        return self._read("summary.json", "delete it and start the run again")

    def environment(self) -> dict[str, Any]:
        """Return the content of env.json; empty before the run begins."""
        return self._read("env.json", "resume=false starts over and keeps it aside") or {}

    def _read(self, name: str, remedy: str) -> dict[str, Any] | None:
        try:
            return read_object(self.path / name)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path / name} is damaged ({error}): {remedy}") from error

    def set_aside(self) -> Path | None:
        """Rename an existing folder to `<run_id>.before-N`, so that a fresh run loses nothing."""
        if not self.path.exists():
            return None
        number = 1
        while (old := self.path.with_name(f"{self.path.name}.before-{number}")).exists():
            number += 1
        self.path.rename(old)
        return old

    def begin(self, config_yaml: str, environment: dict[str, Any]) -> None:
        """Write config, command and environment; a resumed run keeps them and records the new start."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "summary.json").unlink(missing_ok=True)  # of an attempt that failed
        for name, text in (("config.yaml", config_yaml), ("command.txt", command_line() + "\n")):
            if not (self.path / name).exists():
                write_atomically(self.path / name, text)
        content = {**environment, "resumed": []}
        if earlier := self.environment():
            again = {key: environment[key] for key in ("started", "commit", "dirty", "devices")}
            content = {**earlier, "resumed": [*earlier["resumed"], again]}
        write_atomically(self.path / "env.json", json.dumps(content, indent=1) + "\n")

    def command(self) -> str:
        """Return the command that started the run."""
        path = self.path / "command.txt"
        # Read when a training is over: damage to a note must not cost its summary.
        return path.read_text(errors="replace").strip() if path.is_file() else command_line()

    def amend(self, row: dict[str, Any]) -> None:
        """Add metrics that are computed after the last step to the last line of metrics.jsonl."""
        rows = read_metrics(self.metrics)
        rows[-1] |= finite(row)
        write_rows(self.metrics, rows)

    def rewind(self, step: int) -> None:
        """Drop the lines after a step, which will be computed again."""
        for path in (self.metrics, self.spikes):
            if path.exists():
                write_rows(path, [row for row in read_metrics(path) if row["step"] <= step])

    def finish(self, summary: dict[str, Any]) -> None:
        """Write summary.json."""
        text = json.dumps(finite(summary), indent=1, allow_nan=False)
        write_atomically(self.path / "summary.json", text + "\n")


def append(path: Path, row: dict[str, Any]) -> None:
    """Append a row to a file of JSON lines; numbers that are not finite become null."""
    with naming(path), path.open("a") as file:
        file.write(json.dumps(finite(row), allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """Return plain data with None for every number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a metrics.jsonl, except a last line that a kill left incomplete."""
    *lines, last = path.read_bytes().split(b"\n")
    try:
        rows = parse_rows(lines)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}): delete this line") from error
    with suppress(ValueError):
        rows.append(json.loads(last))
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write a file of JSON lines."""
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content at once: a reader sees the old or the new, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with naming(path):
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


# --- what ran, and on what -----------------------------------------------------------------------


def command_line() -> str:
    """Return the command that repeats this process, relative to the repository."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    launcher = "python" if processes == 1 else f"accelerate launch --num_processes={processes}"
    if processes > 1 and not torch.cuda.is_available():  # accelerate's own starts one CPU process
        launcher = f"torchrun --nproc-per-node={processes}"
    typed = os.environ.get(COMMAND) or shlex.join([os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    modules = ",".join(registry.extensions())
    return f"{registry.EXTENSIONS}={modules} " * bool(modules) + f"{launcher} {typed}"


def environment(
    *, seed: int, data: str, weights: str | None = None, devices: int, process: dict[str, Any]
) -> dict[str, Any]:
    """Return the content of env.json: what a result depends on in addition to the config.

    `data` and `weights` are fingerprints of the data and of the weights to start from, `devices` is the
    number of processes, and `process` the result of `tune_process`.
    """
    commit, dirty = repository_state()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    extensions = {
        name: hashlib.sha256(file.read_bytes()).hexdigest()
        for name, file in registry.extensions().items()
    }
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": dirty,
        **({"extensions": extensions} if extensions else {}),
        "seed": seed,
        "data": data,
        **({"weights": weights} if weights else {}),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        "devices": devices,
        "process": process,
    }


def repository_state() -> tuple[str | None, bool | None]:
    """Return (commit, whether files differ from it), or (None, None) outside a repository."""
    git = ["git", "-C", str(Path(__file__).parents[2])]
    try:
        commit, changes = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return commit.strip(), bool(changes.strip())


def processor_name() -> str:
    """Return the processor's name as the system gives it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
