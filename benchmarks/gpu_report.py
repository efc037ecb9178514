"""Measure what needs a GPU, in ten minutes, into one report: `python -m benchmarks.gpu_report`.

The parts, by value: the GPU tests, the use of the GPU's peak, other libraries, precisions, a training of
each pipeline. Each has its share of the time and gives what it leaves to the next; one that fails or runs
out of time is said in the report and ends nothing else. In runs/gpu_report/, or `--output`: report.md,
report.json, log.txt and the benchmarks' records, written anew after each part.

Only torch must be there for the report; what the parts need and is missing is told at the start.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roformer.errors import InputError
from roformer.pipelines import registry
from roformer.script import Arguments, script

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "runs" / "gpu_report"
RUNS, CACHE = WORK / "runs", WORK / "cache"
PRECISIONS = ("fp32", "bf16", "fp16")
CURVE_STEPS, TRIAL_STEPS = 300, 20
Rows = list[list[str]]


@dataclass(frozen=True)
class Settings:
    """What the parts need to know."""

    device: str
    output: Path

    @property
    def trial(self) -> bool:
        """Whether this is a trial of the report itself, on a CPU: sizes are tiny."""
        return self.device == "cpu"


@dataclass(frozen=True)
class Part:
    """One part of the report: commands, and what is read of what they leave."""

    title: str
    minutes: float
    """Of ten."""
    commands: Callable[[Settings], dict[str, list[str]]]
    """Command lines by name."""
    read: Callable[[Settings, dict[str, Ended]], Rows]
    """The table, its header first."""
    together: bool = False
    """Whether commands may run side by side: nothing is timed."""


@dataclass
class Ended:
    """A command that ran, or had no time to."""

    command: str
    status: str = "not begun"
    seconds: float = 0.0
    output: str = field(default="", repr=False)


# --- the parts -----------------------------------------------------------------------------------


def run_tests(settings: Settings) -> dict[str, list[str]]:
    return {"tests": ["-m", "pytest", "-m", "gpu", "-rfE", "--tb=short", "tests/gpu"]}


def read_tests(settings: Settings, ended: dict[str, Ended]) -> Rows:
    lines = ended["tests"].output.splitlines()
    counted = [
        line.strip("= ") for line in lines if re.search(r"\d+ (passed|failed|skipped)", line)
    ]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return [["tests"], *([line] for line in [*counted[-1:], *failed])]


def bench(*suites: str) -> Callable[[Settings], dict[str, list[str]]]:
    def commands(settings: Settings) -> dict[str, list[str]]:
        fast = ["--rounds", "1"] if settings.trial else []
        return {
            suite: ["-m", "benchmarks", suite, *fast, "--output", str(settings.output)]
            for suite in suites
        }

    return commands


def read_bench(settings: Settings, ended: dict[str, Ended]) -> Rows:
    table = [["what", "times faster", "ms", "theirs, ms", "GB", "theirs, GB", "how"]]
    for suite in ended:
        file = settings.output / f"{suite}.json"
        for row in json.loads(file.read_text())["rows"] if file.is_file() else []:
            times, memory = (
                [told(row.get(f"{side}_{unit}"), scale) for side in ("ours", "peer")]
                for unit, scale in (("seconds", 1e3), ("bytes", 1e-9))
            )
            table.append([row["what"], told(row["ratio"]), *times, *memory, row["deviations"]])
    return table


def told(value: float | None, scale: float = 1.0) -> str:
    return f"{value * scale:.2f}" if value else ""


def training(name: str, where: str, settings: Settings, *overrides: str) -> list[str]:
    return [
        registry.get(name).command,
        *(f"runtime={'gpu' if settings.device == 'cuda' else 'default'}", "tracker=none"),
        *(f"runtime.device={settings.device}", "runtime.progress=false"),
        *(f"runtime.runs_dir={RUNS / where}", f"runtime.cache_dir={CACHE}", *overrides),
    ]


def run_curves(settings: Settings) -> dict[str, list[str]]:
    size = "smoke" if settings.trial else "mini"
    steps = TRIAL_STEPS if settings.trial else CURVE_STEPS
    cut = [f"recipe={size}", f"training.steps={steps}", f"training.log_every={steps // 10}"]
    cut += ["runtime.compile=false"]  # so that the precision alone differs
    return {
        precision: training(
            "pretrain", f"curves-{precision}", settings, *cut, f"training.precision={precision}"
        )
        for precision in PRECISIONS
    }


def read_curves(settings: Settings, ended: dict[str, Ended]) -> Rows:
    curves = {precision: losses(f"curves-{precision}") for precision in PRECISIONS}
    exact, others = curves["fp32"], PRECISIONS[1:]
    table = [["step", *PRECISIONS, *(f"{name} - fp32" for name in others)]]
    for step in sorted({step for curve in curves.values() for step in curve}):
        values = [curves[name].get(step) for name in PRECISIONS]
        apart = [
            curves[name][step] - exact[step] if step in curves[name] and step in exact else None
            for name in others
        ]
        signed = ("" if value is None else f"{value:+.4f}" for value in apart)
        plain = ("" if value is None else f"{value:.4f}" for value in values)
        table.append([str(step), *plain, *signed])
    return table


def losses(where: str) -> dict[int, float]:
    """Return the training's loss by step."""
    found = {}
    for file in (RUNS / where).glob("pretrain/*/metrics.jsonl"):
        for row in map(json.loads, file.read_text().splitlines()):
            if "train/loss" in row:
                found[row["step"]] = row["train/loss"]
    return found


def run_trainings(settings: Settings) -> dict[str, list[str]]:
    return {
        name: training(name, name, settings, "recipe=smoke", "training.precision=auto")
        for name in registry.pipelines()
    }


def read_trainings(settings: Settings, ended: dict[str, Ended]) -> Rows:
    table = [["pipeline", "runs", "status", "steps", "tokens/s", "GB"]]
    for name in ended:
        files = (RUNS / name).glob("*/**/summary.json")
        runs = [json.loads(file.read_text()) for file in files]
        states = sorted({run["status"] for run in runs})
        speed = max((run["tokens_per_second"] for run in runs), default=0.0)
        memory = max((run.get("peak_memory_bytes", 0) for run in runs), default=0)
        steps = sum(run["steps"] for run in runs)
        numbers = [str(steps), f"{speed:,.0f}", told(memory, 1e-9)] if runs else [""] * 3
        table.append([name, str(len(runs)), ", ".join(states) or "none finished", *numbers])
    return table


PARTS = {
    "tests": Part("Tests that need a GPU", 2.0, run_tests, read_tests),
    "mfu": Part(
        "Share of the peak: base at 512 in bf16", 1.5, bench("mfu", "mfu_compiled"), read_bench
    ),
    "bench": Part(
        "Against transformers", 3.5, bench("rotary", "peers", "peers_compiled"), read_bench
    ),
    "curves": Part("Losses by precision", 1.2, run_curves, read_curves),
    "trainings": Part(
        "A training of each pipeline", 1.8, run_trainings, read_trainings, together=True
    ),
}


# --- running them --------------------------------------------------------------------------------


def run_part(part: Part, settings: Settings, deadline: float) -> dict[str, Ended]:
    """Run the commands of a part, each with an equal share of the time that is left."""
    commands = {name: [sys.executable, *words] for name, words in part.commands(settings).items()}
    jobs = max(1, (os.cpu_count() or 1) // 2) if part.together else 1
    left = len(commands)

    def one(words: list[str]) -> Ended:
        nonlocal left
        limit = (deadline - time.monotonic()) / math.ceil(left / jobs)
        left -= 1
        return run_command(words, limit, settings)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            return dict(zip(commands, pool.map(one, commands.values()), strict=True))
        except BaseException:  # Ctrl-C, SIGTERM
            pool.shutdown(wait=False, cancel_futures=True)
            for process in RUNNING.copy():
                with_its_children(process)
            raise


RUNNING: set[subprocess.Popen[str]] = set()
"""Commands that run now."""


def run_command(words: Sequence[str], limit: float, settings: Settings) -> Ended:
    """Run a command, and end it and all that it started when its time is over."""
    ended = Ended(shown(words))
    if limit < 1:
        return ended
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    outside = {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    if settings.trial:
        outside["CUDA_VISIBLE_DEVICES"] = ""
    began = time.monotonic()
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env=os.environ | outside,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    RUNNING.add(process)
    try:
        ended.output, _ = process.communicate(timeout=limit)
        ended.status = "done" if process.returncode == 0 else f"failed ({process.returncode})"
    except subprocess.TimeoutExpired:
        with_its_children(process)
        ended.output, _ = process.communicate()
        ended.status = f"out of time after {limit:.0f} s"
    finally:
        with_its_children(process)
        RUNNING.discard(process)
    ended.seconds = time.monotonic() - began
    return ended


def with_its_children(process: subprocess.Popen[str]) -> None:
    """End what is left of a command's process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def shown(words: Sequence[str]) -> str:
    """Return a command line with paths relative to the repository."""
    return shlex.join(["python", *(word.replace(f"{ROOT}{os.sep}", "") for word in words[1:])])


# --- the report ----------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """Return what the numbers depend on: GPU, driver, versions."""
    import torch

    found = {"torch": torch.__version__, "CUDA": str(torch.version.cuda)}
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        found["GPU"] = f"{gpu.name}, {gpu.total_memory / 1e9:.0f} GB, sm_{gpu.major}{gpu.minor}"
        found["driver"] = asked("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    found |= {"Python": platform.python_version(), "cores": str(os.cpu_count())}
    found["commit"] = asked("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    versions = (f"{name} {there}" for name, there in packages() if there and name != "torch")
    return found | {"packages": ", ".join(versions)}


def asked(*words: str) -> str:
    """Return the first line of what a program says, or "unknown"."""
    try:
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return (said.splitlines() or ["unknown"])[0]


def packages() -> Iterator[tuple[str, str | None]]:
    """Yield the packages of requirements.txt with the version that is installed."""
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if found := re.match(r"[\w-]+(?===)", line):
            try:
                yield found[0], importlib.metadata.version(found[0])
            except importlib.metadata.PackageNotFoundError:
                yield found[0], None


def write_report(settings: Settings, facts: dict[str, str], parts: list[dict[str, Any]]) -> None:
    """Write report.md and report.json."""
    lines = ["# GPU report", ""]
    if settings.trial:
        lines += ["**A trial on a CPU with tiny sizes: no number here is a measurement.**", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    for part in parts:
        lines += ["", f"## {part['title']}", ""]
        header, *rows = part["table"]
        if rows:
            lines += [markdown(header), markdown(["---"] * len(header)), *map(markdown, rows), ""]
        for one in part["commands"]:
            said = f"{one['status']}, {one['seconds']:.0f} s: `{one['command']}`"
            why = one["why"] and f" ({one['why']})"
            lines.append(f"- {said}{why}")
    content = {"trial": settings.trial, "machine": facts, "parts": parts}
    (settings.output / "report.json").write_text(json.dumps(content, indent=1) + "\n")
    (settings.output / "report.md").write_text("\n".join(lines) + "\n")


def markdown(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def told_of(part: Part, settings: Settings, ended: dict[str, Ended]) -> dict[str, Any]:
    """Return what the report says of a part."""
    commands = [
        {
            "command": one.command,
            "status": one.status,
            "seconds": round(one.seconds, 1),
            "why": "" if one.status == "done" else last_line(one.output),
        }
        for one in ended.values()
    ]
    try:
        table = part.read(settings, ended)
    except (ValueError, KeyError, TypeError) as error:  # a record that was not written to its end
        table = [["nothing can be read"], [f"{type(error).__name__}: {error}"]]
    return {"title": part.title, "table": table, "commands": commands}


def last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300].replace("|", "/") if lines else ""


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all parts together")
    parser.add_argument("--output", type=Path, default=WORK, help="folder of the report")
    parser.add_argument("--dry-run", action="store_true", help="print parts and commands")
    # Tries the report itself where there is no GPU, with tiny sizes.
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := [name for name in given.parts if name not in PARTS]:
        raise InputError(f"--parts={unknown[0]}: choose one of {', '.join(PARTS)}")
    if not given.minutes > 0:
        raise InputError(f"--minutes={given.minutes:g} must be above 0")
    settings = Settings(given.device, given.output.resolve())
    parts = [part for name, part in PARTS.items() if name in given.parts]
    total = sum(part.minutes for part in parts)
    if given.dry_run:
        for part in parts:
            print(f"{part.title}: at least {given.minutes * part.minutes / total:.1f} minutes")
            for words in part.commands(settings).values():
                print(f"  {shown(['', *words])}")
        return
    if not settings.trial:
        require_gpu()
    report(settings, parts, given.minutes)


def require_gpu() -> None:
    """Raise InputError where there is no torch, or it sees no CUDA device."""
    try:
        import torch
    except ImportError as error:
        raise InputError(f"{sys.executable} cannot import torch: {error}") from error

    if not torch.cuda.is_available():
        build = "has no CUDA" if torch.version.cuda is None else "finds no CUDA device"
        raise InputError(
            f"torch {torch.__version__} {build}: run this on a machine with a GPU; --dry-run shows "
            "what it does"
        )


def report(settings: Settings, parts: list[Part], minutes: float) -> None:
    """Run the parts and write the report."""
    if missing := [name for name, there in packages() if there is None]:
        print(f"missing here, parts that need them will fail and say so: {', '.join(missing)}")
    settings.output.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(RUNS, ignore_errors=True)  # a finished run is not run again
    for name in ("mfu", "mfu_compiled", "rotary", "peers", "peers_compiled"):
        (settings.output / f"{name}.json").unlink(missing_ok=True)
    facts = machine()
    end, done = time.monotonic() + 60 * minutes, list[dict[str, Any]]()
    with (settings.output / "log.txt").open("w") as log:
        for number, part in enumerate(parts):
            share = part.minutes / sum(other.minutes for other in parts[number:])
            now = time.monotonic()
            ended = run_part(part, settings, now + share * (end - now))
            for one in ended.values():
                print(f"$ {one.command}\n{one.output}\n[{one.status}]\n", file=log, flush=True)
            done.append(told_of(part, settings, ended))
            write_report(settings, facts, done)
            states = ", ".join(f"{name} {one.status}" for name, one in ended.items())
            print(f"{part.title}: {states} ({time.monotonic() - now:.0f} s)", flush=True)
    print(f"report: {settings.output / 'report.md'}")


if __name__ == "__main__":
    main()
