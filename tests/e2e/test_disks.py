"""A disk that fills up or that cannot be written: one line, and the run continues.

A separate process mounts a small disk in memory, and forks one child for each start of a training,
so that every start ends as a script does: with an exit code and whatever it printed.
"""

import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from roformer.cli import one_line_errors
from roformer.tasks import translation
from roformer.tasks.classification import ClassificationTask
from roformer.training.checkpoint import Checkpoints, damage
from roformer.training.loop import Loop
from roformer.training.records import RunFolder
from tests.conftest import REPOSITORY
from tests.e2e import test_glue, wmt_runs
from tests.e2e.conftest import SMALL, assert_same, small_run, write_corpus

pytestmark = pytest.mark.slow
PIPELINES: dict[str, Callable[[list[str]], Any]] = {
    "pretrain": lambda arguments: small_run([*SMALL, "training.log_every=1", *arguments]),
    "glue": lambda arguments: test_glue.run([*test_glue.SMALL, "keep_weights=all", *arguments]),
    "wmt": lambda arguments: wmt_runs.small_run([*wmt_runs.SMALL, *arguments]),
}
TEXTS = {"pretrain": ["data.path=text.jsonl"], "wmt": ["data.path=parallel"], "glue": []}
SIZE = "40m"
"""Of the disk: room for the checkpoints that two runs keep."""


class Scene(NamedTuple):
    """Before which call of which function the disk is full, and what is said of it."""

    pipeline: str
    owner: Any
    function: str
    file: str
    """Part of the path that the error names."""
    checkpoints: int
    """Number of complete checkpoints."""
    spare: int = 0
    """Bytes that are left: a few, as with a large file that does not fit, or zero."""
    when: Callable[..., bool] = lambda *given: True


FULL = {
    "checkpoint": Scene(
        *("pretrain", Checkpoints, "save", "checkpoints/", 1, 64 << 10),
        lambda keeper, step, *rest: step == 12,
    ),
    # A row fits into what is left of the file's last page, so only a later one meets the full disk.
    "metrics": Scene(
        "pretrain", RunFolder, "log", "metrics.jsonl", 3, 0, lambda folder, row: row["step"] == 19
    ),
    "summary": Scene("glue", RunFolder, "finish", "summary.json", 2),
    "predictions": Scene("glue", ClassificationTask, "write_predictions", "validation.tsv", 2),
    "translations": Scene("wmt", translation, "write_lines", "test.", 3),
    "average": Scene("wmt", translation, "save_average", "averaged", 3, 64 << 10),
}


# --- in the process that mounts ------------------------------------------------------------------


class SmallDisk:
    """A small disk at `disk` in the working directory, and trainings that write to it."""

    def __init__(self) -> None:
        self.disk, self.outcomes = Path("disk"), dict[str, list[dict[str, Any]]]()
        self.disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", self.disk]
        subprocess.run(mount, check=True)

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.disk], check=True)

    def fill(self, spare: int = 0) -> None:
        """Leave so many bytes free."""
        with open(self.disk / "ballast", "ab", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while ballast.write(bytes(size)):
                        pass
                except OSError:
                    continue
            ballast.truncate(ballast.tell() - spare)

    def start(
        self,
        scene: str,
        pipeline: str,
        prepare: Callable[[], object] = lambda: None,
        cache: str = "cache",
    ) -> None:
        """Run a pipeline in a child, after `prepare` there; note its code, output and checkpoints."""
        place = Path() if scene == "calm" else self.disk / scene
        where = [f"runtime.cache_dir={cache}", f"runtime.runs_dir={place / 'runs'}"]
        if (child := os.fork()) == 0:
            code: Any = 70
            try:
                with open("output", "w") as stream:
                    os.dup2(stream.fileno(), 1)
                    os.dup2(stream.fileno(), 2)
                prepare()
                with one_line_errors():
                    PIPELINES[pipeline]([*TEXTS[pipeline], *where])
                code = 0
            except SystemExit as left:
                code = left.code
            except BaseException:
                traceback.print_exc()
                code = 99
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        steps = sorted(place.glob("runs/*/*/checkpoints/step_*"))
        self.outcomes.setdefault(scene, []).append(
            {
                "pipeline": pipeline,
                "code": code,
                "output": Path("output").read_text(),
                "checkpoints": {path.name: damage(path) for path in steps},
            }
        )

    def keep(self, scene: str) -> None:
        """Move what a scene wrote off the disk, and empty it."""
        if (self.disk / scene).exists():
            shutil.copytree(self.disk / scene, Path("kept") / scene, symlinks=True)
        for path in self.disk.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.remount(f"size={SIZE}")

    def full(self, name: str, scene: Scene) -> None:
        """Fill the disk just before the scene's call; then enlarge it and start again."""
        real = getattr(scene.owner, scene.function)

        def filled(*given: Any, **named: Any) -> Any:
            if scene.when(*given):
                self.fill(scene.spare)
            return real(*given, **named)

        self.start(name, scene.pipeline, lambda: setattr(scene.owner, scene.function, filled))
        self.remount("size=200m")
        self.start(name, scene.pipeline)
        self.keep(name)


def main() -> None:
    write_corpus(Path("text.jsonl"))
    wmt_runs.write_parallel_text(Path("parallel"))
    disk = SmallDisk()
    for pipeline in PIPELINES:
        disk.start("calm", pipeline)
    for name, scene in FULL.items():
        disk.full(name, scene)

    disk.fill(spare=16 << 10)
    cache = disk.disk / "cache"
    disk.start("preparation", "pretrain", cache=str(cache))
    left = [str(path) for path in cache.rglob("*") if path.is_file()]
    disk.outcomes["preparation"][0]["left"] = left
    disk.remount("size=200m")
    disk.start("preparation", "pretrain", cache=str(cache))
    disk.keep("preparation")

    dying = mock.Mock(side_effect=KeyboardInterrupt)
    disk.start("read-only", "pretrain", lambda: setattr(Loop, "_evaluate", dying))
    disk.remount("ro")
    disk.start("read-only", "pretrain")
    disk.remount(f"rw,size={SIZE}")
    disk.start("read-only", "pretrain")
    disk.keep("read-only")
    Path("outcomes.json").write_text(json.dumps(disk.outcomes, indent=1))
    subprocess.run(["umount", disk.disk], check=True)


# --- what came of it -----------------------------------------------------------------------------

MAY_MOUNT = [
    "unshare",
    *(["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]),
]


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """Return (folder, outcomes by scene)."""
    if shutil.which("unshare") is None:
        pytest.skip("a small disk is mounted with unshare(1), which is not here")
    folder = tmp_path_factory.mktemp("disks")
    trial = f"mount -t tmpfs -o size=1m tmpfs {folder}"
    tried = subprocess.run([*MAY_MOUNT, "sh", "-c", trial], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"this user may not mount a small disk: {tried.stderr.strip()}")
    done = subprocess.run(
        [*MAY_MOUNT, sys.executable, "-m", __name__],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, json.loads((folder / "outcomes.json").read_text())


def one_line(outcome: dict[str, Any]) -> str:
    """Return the only line of an error."""
    assert outcome["code"] not in (0, 70, 99), outcome["output"]
    assert "Traceback" not in outcome["output"], outcome["output"]
    lines = [line for line in outcome["output"].splitlines() if "rror" in line]
    assert len(lines) == 1 and lines[0].startswith("error: "), outcome["output"]
    return lines[0]


def assert_went_on(disk, scene: str) -> None:
    """The last start ended well, and all is as in the run that nothing happened to."""
    folder, outcomes = disk
    last = outcomes[scene][-1]
    assert last["code"] == 0, last["output"]
    (ours,) = (folder / "kept" / scene / "runs" / last["pipeline"]).iterdir()
    (calm,) = (folder / "runs" / last["pipeline"]).iterdir()
    assert_same(ours, calm)
    for texts in ("translations", "predictions"):
        for path in (calm / texts).glob("*"):
            assert (ours / texts / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("scene", FULL)
def test_a_disk_that_fills_up(disk, scene):
    """Catches an error that names no file, one from under safetensors or tokenizers that is no
    system error, a half-written checkpoint, and a torn file that the next start trips over."""
    outcome = disk[1][scene][0]
    line = one_line(outcome)
    assert line.startswith("error: No space left on device while writing ")
    assert FULL[scene].file in line and "start the same command again" in line
    assert set(outcome["checkpoints"].values()) == {None}
    assert len(outcome["checkpoints"]) >= FULL[scene].checkpoints
    assert_went_on(disk, scene)


def test_a_disk_that_is_full_while_the_data_is_prepared(disk):
    outcome = disk[1]["preparation"][0]
    told = "the disk is full; what was written is removed. Move runtime.cache_dir"
    assert told in one_line(outcome) and outcome["left"] == []
    assert_went_on(disk, "preparation")


def test_a_run_folder_that_cannot_be_written(disk):
    stopped, refused, _ = disk[1]["read-only"]
    line = one_line(refused)
    assert line.startswith("error: Read-only file system while writing ") and "/runs/" in line
    assert refused["checkpoints"] == stopped["checkpoints"] != {}
    assert_went_on(disk, "read-only")


if __name__ == "__main__":
    main()
