"""A disk that fills up or that cannot be written: one line, and the same command goes on."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from roformer.errors import one_line_errors
from roformer.tasks import translation
from roformer.training.checkpoint import Checkpoints, damage
from roformer.training.records import RunFolder
from tests.e2e import wmt_runs
from tests.e2e.conftest import SMALL, run_in_process

pytestmark = pytest.mark.slow
SIZE = "40m"
"""Of the disk: room for the checkpoints that a run keeps."""


class SmallDisk(NamedTuple):
    """A disk in memory."""

    path: Path

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.path], check=True)

    def fill(self, spare: int = 0) -> None:
        """Leave so many bytes free."""
        with open(self.path / "ballast", "ab", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while ballast.write(bytes(size)):
                        pass
                except OSError:
                    continue
            ballast.truncate(ballast.tell() - spare)


@pytest.fixture
def disk(tmp_path):
    (place := tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", place]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this user may not mount a small disk: {done.stderr.strip()}")
    yield SmallDisk(place)
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture(scope="module")
def commands(corpus, tmp_path_factory):
    """Return the command line of each pipeline, which writes on no small disk yet."""
    folder = tmp_path_factory.mktemp("calm")
    wmt_runs.write_parallel_text(folder / "text")
    pairs = [f"data.path={folder / 'text'}", f"runtime.cache_dir={folder / 'cache'}"]
    where = f"runtime.runs_dir={folder / 'runs'}"
    return {
        "pretrain": [*SMALL, "training.log_every=1", *corpus, where],
        "wmt": [*wmt_runs.SMALL, *pairs, where],
    }


class Scene(NamedTuple):
    """Before which call of which function the disk is full, and what is said of it."""

    pipeline: str
    owner: Any
    function: str
    file: str
    """Part of the path that the error names."""
    spare: int = 0
    """Bytes that are left: a few, as with a large file that does not fit, or zero."""
    when: Callable[..., bool] = lambda *given: True


FULL = {
    "checkpoint": Scene(
        *("pretrain", Checkpoints, "save", "checkpoints/", 64 << 10),
        lambda keeper, step, *rest: step == 12,
    ),
    # A row fits into what is left of the file's last page, so only a later one meets the full disk.
    "metrics": Scene(
        "pretrain", RunFolder, "log", "metrics.jsonl", 0, lambda folder, row: row["step"] == 19
    ),
    "summary": Scene("pretrain", RunFolder, "finish", "summary.json"),
    "translations": Scene("wmt", translation, "write_lines", "test."),
    "average": Scene("wmt", translation, "save_average", "averaged", 64 << 10),
}


def failed(capsys, *start: Any) -> str:
    """Return the only line of a run that fails."""
    capsys.readouterr()
    with pytest.raises(SystemExit), one_line_errors():
        run_in_process(*start)
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("name", FULL)
def test_a_disk_that_fills_up(disk, commands, monkeypatch, capsys, name):
    """Catches an error that names no file, one from under safetensors or tokenizers that is no
    system error, a half-written checkpoint, and a torn file that the next start trips over."""
    scene = FULL[name]
    start = (scene.pipeline, [*commands[scene.pipeline], f"runtime.runs_dir={disk.path / 'runs'}"])
    real = getattr(scene.owner, scene.function)

    def filled(*given: Any, **named: Any) -> Any:
        if scene.when(*given):
            disk.fill(scene.spare)
        return real(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(scene.owner, scene.function, filled)
        line = failed(capsys, *start)
    assert line.startswith("error: No space left on device while writing ")
    assert scene.file in line and "start the same command again" in line
    checkpoints = [*disk.path.glob("runs/*/*/checkpoints/step_*")]
    assert checkpoints and not any(map(damage, checkpoints))
    disk.remount("size=200m")
    assert run_in_process(*start)[0]["steps"] == 24


def test_a_run_folder_that_cannot_be_written(disk, commands, stop_at, capsys):
    start = ("pretrain", [*commands["pretrain"], f"runtime.runs_dir={disk.path / 'runs'}"])
    go_on = stop_at(14)
    with pytest.raises(KeyboardInterrupt):
        run_in_process(*start)
    go_on()
    disk.remount("ro")
    line = failed(capsys, *start)
    assert line.startswith("error: Read-only file system while writing ") and "/runs/" in line
    disk.remount(f"rw,size={SIZE}")
    assert run_in_process(*start)[0]["steps"] == 24
