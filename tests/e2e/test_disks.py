"""A disk that fills up, that cannot be written, or that changed a byte: one line, and the run goes on.

A process of its own mounts a small disk in memory, and forks one child for each start of a training,
so that every start ends as a script does: with an exit code and whatever it printed.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
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
GLUE = [
    *("recipe=smoke", "tracker=none", "jobs=1", "task=mrpc", "keep_weights=all", "seed=[0]"),
    *("data.train_examples=96", "data.max_train_examples=null", "data.validation_examples=40"),
    *("training.max_length=48", "training.epochs=3", "optimizer.learning_rate=[1e-3]"),
    *("runtime.device=cpu", "runtime.progress=false", "runtime.tune_process=false"),
]
PIPELINES: dict[str, Callable[[list[str]], Any]] = {
    "pretrain": lambda arguments: small_run([*SMALL, "training.log_every=1", *arguments]),
    "glue": lambda arguments: test_glue.run([*GLUE, *arguments]),
    "wmt": lambda arguments: wmt_runs.small_run([*wmt_runs.SMALL, *arguments]),
}
SIZE = "40m"
"""Of the disk: room for the checkpoints that two runs keep."""


# --- in the process that mounts ------------------------------------------------------------------


class Laboratory:
    """A small disk below `folder`, and trainings that write to it."""

    def __init__(self, folder: Path):
        self.folder, self.disk = folder, folder / "disk"
        self.outcomes: dict[str, list[dict[str, Any]]] = {}
        self.disk.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", self.disk], check=True
        )

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

    def arguments(self, pipeline: str, scene: str, cache: Path | None = None) -> list[str]:
        text = {"pretrain": ["text.jsonl"], "wmt": ["parallel"], "glue": []}[pipeline]
        return [
            *(f"data.path={self.folder / name}" for name in text),
            f"runtime.cache_dir={cache or self.folder / 'cache'}",
            f"runtime.runs_dir={(self.folder if scene == 'calm' else self.disk / scene) / 'runs'}",
        ]

    def start(self, scene: str, pipeline: str, prepare: Callable[[], None], **where: Path) -> int:
        """Run a pipeline in a child, after `prepare` there; note its code, output and checkpoints."""
        output = self.folder / "output"
        if (child := os.fork()) == 0:
            code = 70
            try:
                with output.open("w") as stream:
                    os.dup2(stream.fileno(), 1)
                    os.dup2(stream.fileno(), 2)
                prepare()
                with one_line_errors():
                    PIPELINES[pipeline](self.arguments(pipeline, scene, **where))
                code = 0
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else 1
            except BaseException:
                traceback.print_exc()
                code = 99
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        runs = (self.disk / scene / "runs" / pipeline).glob("*/checkpoints/step_*")
        self.outcomes.setdefault(scene, []).append(
            {
                "code": code,
                "output": output.read_text(),
                "checkpoints": {path.name: damage(path) for path in sorted(runs)},
            }
        )
        return code

    def keep(self, scene: str) -> None:
        """Move what a scene wrote off the disk, and empty it."""
        if (self.disk / scene).exists():
            shutil.copytree(self.disk / scene, self.folder / "kept" / scene, symlinks=True)
        for path in self.disk.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.remount(f"size={SIZE}")

    def full(
        self,
        scene: str,
        pipeline: str,
        owner: Any,
        name: str,
        at: Callable[..., bool],
        spare: int = 0,
    ) -> None:
        """Fill the disk just before a function's call for which `at` is true; then enlarge it."""
        real = getattr(owner, name)

        def filled(*given: Any, **named: Any) -> Any:
            if at(*given):
                self.fill(spare)
            return real(*given, **named)

        self.start(scene, pipeline, lambda: setattr(owner, name, filled))
        self.remount("size=200m")
        self.start(scene, pipeline, lambda: None)
        self.keep(scene)

    def damaged(self, pipeline: str, update: int, newest: int) -> None:
        """Kill a run, flip one bit of its newest checkpoint, and start it again."""
        scene, real = f"{pipeline}: a flipped bit", Loop._update

        def dying(loop: Loop, batches: Any) -> None:
            if loop.state.step + 1 == update:
                os._exit(9)
            real(loop, batches)

        self.start(scene, pipeline, lambda: setattr(Loop, "_update", dying))
        (run,) = (self.disk / scene / "runs" / pipeline).iterdir()
        file = run / "checkpoints" / f"step_{newest:08d}" / "model.safetensors"
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        self.start(scene, pipeline, lambda: None)
        self.keep(scene)


def always(*given: Any) -> bool:
    return True


def obey_permissions() -> None:
    """Give up root's right to write what its owner may not (CAP_DAC_OVERRIDE, with all others)."""
    version_3 = (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert ctypes.CDLL(None).capset(version_3, (ctypes.c_uint32 * 6)()) == 0


def main(folder: Path) -> None:
    write_corpus(folder / "text.jsonl")
    wmt_runs.write_parallel_text(folder / "parallel")
    lab = Laboratory(folder)
    for pipeline in PIPELINES:
        lab.start("calm", pipeline, lambda: None)

    def step(of: int) -> Callable[..., bool]:
        return lambda keeper, number, *rest: number == of

    # A little room is left, as there is beside a large file that does not fit; or none at all.
    for pipeline in PIPELINES:
        lab.full(f"{pipeline}: checkpoint", pipeline, Checkpoints, "save", step(12), 64 << 10)
        lab.full(
            f"{pipeline}: checkpoint on a disk that stays full",
            pipeline,
            Checkpoints,
            "save",
            step(12),
        )
        lab.full(f"{pipeline}: summary", pipeline, RunFolder, "finish", always)
    # A row fits into what is left of the file's last page, so only a later one meets the full disk.
    lab.full(
        "pretrain: metrics", "pretrain", RunFolder, "log", lambda folder, row: row["step"] == 19
    )
    lab.full("wmt: translations", "wmt", translation, "write_lines", always)
    lab.full("wmt: average", "wmt", translation, "save_average", always, 64 << 10)
    lab.full("glue: predictions", "glue", ClassificationTask, "write_predictions", always)

    for pipeline in PIPELINES:
        scene = f"{pipeline}: preparation"
        cache = lab.disk / "cache"
        lab.fill(spare=16 << 10)
        lab.start(scene, pipeline, lambda: None, cache=cache)
        left = [str(path) for path in cache.rglob("*") if path.is_file()]
        lab.outcomes[scene][0]["left"] = left
        lab.remount("size=200m")
        lab.start(scene, pipeline, lambda: None, cache=cache)
        lab.keep(scene)

    dying = mock.Mock(side_effect=KeyboardInterrupt)
    lab.start("pretrain: read-only", "pretrain", lambda: setattr(Loop, "_evaluate", dying))
    lab.remount("ro")
    lab.start("pretrain: read-only", "pretrain", lambda: None)
    lab.remount(f"rw,size={SIZE}")
    lab.start("pretrain: read-only", "pretrain", lambda: None)
    lab.keep("pretrain: read-only")

    lab.start("pretrain: not ours", "pretrain", lambda: setattr(Loop, "_evaluate", dying))
    (run,) = (lab.disk / "pretrain: not ours" / "runs" / "pretrain").iterdir()
    folders = [run, *(path for path in run.rglob("*") if path.is_dir() and not path.is_symlink())]
    files = [path for path in run.rglob("*") if path.is_file() and not path.is_symlink()]
    for path in (*folders, *files):
        path.chmod(0o555 if path.is_dir() else 0o444)
    lab.start("pretrain: not ours", "pretrain", obey_permissions)
    for path in (*folders, *files):
        path.chmod(0o755 if path.is_dir() else 0o644)
    lab.start("pretrain: not ours", "pretrain", obey_permissions)
    lab.keep("pretrain: not ours")

    lab.damaged("glue", update=14, newest=12)
    lab.damaged("wmt", update=16, newest=12)
    (folder / "outcomes.json").write_text(json.dumps(lab.outcomes, indent=1))
    subprocess.run(["umount", lab.disk], check=True)


# --- what came of it -----------------------------------------------------------------------------

MAY_MOUNT = [
    "unshare",
    *(["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]),
]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory):
    """Return (folder, outcomes by scene)."""
    if shutil.which("unshare") is None:
        pytest.skip("a small disk is mounted with unshare(1), which is not here")
    folder = tmp_path_factory.mktemp("disks")
    trial = f"mount -t tmpfs -o size=1m tmpfs {folder}"
    tried = subprocess.run([*MAY_MOUNT, "sh", "-c", trial], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"this user may not mount a small disk: {tried.stderr.strip()}")
    done = subprocess.run(
        [*MAY_MOUNT, sys.executable, "-m", __name__, str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
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


def assert_went_on(laboratory, scene: str) -> None:
    """The last start ended well, and all is as in the run that nothing happened to."""
    folder, outcomes = laboratory
    last = outcomes[scene][-1]
    assert last["code"] == 0, last["output"]
    pipeline = scene.partition(":")[0]
    (ours,) = (folder / "kept" / scene / "runs" / pipeline).iterdir()
    (calm,) = (folder / "runs" / pipeline).iterdir()
    assert_same(ours, calm)
    for texts in ("translations", "predictions"):
        for path in (calm / texts).glob("*"):
            assert (ours / texts / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("scene", "file", "checkpoints"),
    [
        ("pretrain: checkpoint", "checkpoints/", 1),
        ("pretrain: checkpoint on a disk that stays full", "checkpoints/", 1),
        ("pretrain: metrics", "metrics.jsonl", 3),
        ("pretrain: summary", "summary.json", 4),
        ("glue: checkpoint", "checkpoints/", 1),
        ("glue: checkpoint on a disk that stays full", "checkpoints/", 1),
        ("glue: summary", "summary.json", 3),
        ("glue: predictions", "validation.tsv", 3),
        ("wmt: checkpoint", "checkpoints/", 1),
        ("wmt: checkpoint on a disk that stays full", "checkpoints/", 1),
        ("wmt: summary", "summary.json", 3),
        ("wmt: average", "averaged", 3),
        ("wmt: translations", "test.", 3),
    ],
)
def test_a_disk_that_fills_up(laboratory, scene, file, checkpoints):
    """Catches an error that names no file, one from under safetensors or tokenizers that is no
    system error, a half-written checkpoint, and a torn file that the next start trips over."""
    outcome = laboratory[1][scene][0]
    line = one_line(outcome)
    print(line)
    assert line.startswith("error: No space left on device while writing ") and file in line
    assert "start the same command again" in line
    assert set(outcome["checkpoints"].values()) == {None}
    assert len(outcome["checkpoints"]) >= checkpoints
    assert_went_on(laboratory, scene)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_disk_that_is_full_while_the_data_is_prepared(laboratory, pipeline):
    scene = f"{pipeline}: preparation"
    outcome = laboratory[1][scene][0]
    print(line := one_line(outcome))
    assert "the disk is full; what was written is removed. Move runtime.cache_dir" in line
    assert outcome["left"] == []
    assert_went_on(laboratory, scene)


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        ("pretrain: read-only", "error: Read-only file system while writing "),
        ("pretrain: not ours", "error: Permission denied while writing "),
    ],
)
def test_a_run_folder_that_cannot_be_written(laboratory, scene, message):
    stopped, refused, _ = laboratory[1][scene]
    print(line := one_line(refused))
    assert line.startswith(message) and "/runs/" in line
    assert refused["checkpoints"] == stopped["checkpoints"] != {}
    assert_went_on(laboratory, scene)


@pytest.mark.parametrize("pipeline", ["glue", "wmt"])
def test_a_flipped_bit_is_told_and_the_checkpoint_before_is_used(laboratory, pipeline):
    scene = f"{pipeline}: a flipped bit"
    output = laboratory[1][scene][1]["output"]
    (told,) = [line for line in output.splitlines() if "damaged" in line]
    print(told)
    assert told.endswith("step_00000012: model.safetensors does not match its checksum")
    assert "resuming at step 6" in output
    assert_went_on(laboratory, scene)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
