"""A disk that fills up or that cannot be written: one line, and the same command goes on."""

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from roformer.errors import one_line_errors
from roformer.training import loop
from roformer.training.checkpoint import Checkpoints, damage
from roformer.training.records import RunFolder
from tests.e2e.conftest import small_run

pytestmark = pytest.mark.slow
SIZE = "40m"
"""Of the disk: room for the checkpoints that a run keeps."""


class SmallDisk(NamedTuple):
    """A disk in memory."""

    path: Path

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.path], check=True)

    def fill(self, spare: int) -> None:
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


@pytest.fixture
def command(disk, arguments):
    """Return the command line of a run on the small disk."""
    return [*arguments, "training.log_every=1", f"runtime.runs_dir={disk.path / 'runs'}"]


def failed(capsys, command: list[str]) -> str:
    """Return the only line of a run that fails."""
    capsys.readouterr()
    with pytest.raises(SystemExit), one_line_errors():
        small_run(command)
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("owner", "function", "file", "spare", "when"),
    [
        (Checkpoints, "save", "checkpoints/", 64 << 10, lambda keeper, step, *rest: step == 12),
        # A row fits into what is left of the file's last page, so a later one meets the full disk.
        (loop, "append", "metrics.jsonl", 0, lambda path, row: row["step"] == 19),
        (RunFolder, "finish", "summary.json", 0, lambda *given: True),
    ],
)
def test_a_disk_that_fills_up(
    disk, command, monkeypatch, capsys, owner, function, file, spare, when
):
    """Catches an error that names no file, one from under safetensors that is no system error, a
    half-written checkpoint, and a torn file that the next start trips over."""
    real = getattr(owner, function)

    def filled(*given, **named):
        if when(*given):
            disk.fill(spare)
        return real(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, function, filled)
        line = failed(capsys, command)
    assert line.startswith("error: No space left on device while writing ")
    assert file in line and "start the same command again" in line
    checkpoints = [*disk.path.glob("runs/*/*/checkpoints/step_*")]
    assert checkpoints and not any(map(damage, checkpoints))
    disk.remount("size=200m")
    assert small_run(command)[0]["steps"] == 24


def test_a_run_folder_that_cannot_be_written(disk, command, stop_at, capsys):
    go_on = stop_at(14)
    with pytest.raises(KeyboardInterrupt):
        small_run(command)
    go_on()
    disk.remount("ro")
    line = failed(capsys, command)
    assert line.startswith("error: Read-only file system while writing ") and "/runs/" in line
    disk.remount(f"rw,size={SIZE}")
    assert small_run(command)[0]["steps"] == 24
