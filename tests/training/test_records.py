"""A run's own folder: what a kill or a disk may leave of it."""

import socket
import subprocess
import sys

import pytest

from roformer.errors import InputError
from roformer.training.records import RunFolder, read_metrics


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"[]", b"{", b'{"a": NaN}', b"\xff", b"[" * 10**5]
)
def test_a_damaged_file_is_one_line(tmp_path, content):
    for name, read in (("summary", "summary"), ("env", "environment")):
        (tmp_path / f"{name}.json").write_bytes(content)
        with pytest.raises(InputError, match=f"{name}.json is damaged") as refusal:
            getattr(RunFolder(tmp_path), read)()
        assert "\n" not in str(refusal.value)


def test_metrics_are_rewound_to_a_step_without_a_torn_last_line(tmp_path):
    folder = RunFolder(tmp_path)
    for step in (1, 2, 3):
        folder.log({"step": step, "valid/loss": float("nan")})
    with folder.metrics.open("a") as file:
        file.write('{"step": 4, "val')
    folder.rewind(2)
    folder.amend({"test/loss": 2.0})
    rows = [{"step": 1, "valid/loss": None}, {"step": 2, "valid/loss": None, "test/loss": 2.0}]
    assert read_metrics(folder.metrics) == rows
    folder.metrics.write_bytes(b'{"step": 1}\n\0\0\0\n{"step": 2}\n')
    with pytest.raises(InputError, match=r"metrics.jsonl:2 is damaged"):
        folder.rewind(2)


HOLDER = """
import sys, time
from pathlib import Path
from roformer.training.records import RunFolder
with RunFolder(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_gets_an_error_that_names_the_holder(tmp_path):
    """Also that a killed holder is no obstacle, though its file is left behind."""
    folder = RunFolder(tmp_path / "runs" / "pretrain" / "a")
    holding = [sys.executable, "-c", HOLDER, str(folder.path)]
    with subprocess.Popen(holding, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(InputError) as refusal, folder.locked():
            pass
        holder.kill()
    named = f"process {holder.pid} on {socket.gethostname()}"
    assert str(refusal.value).endswith(f"/a is being written by {named}: wait for it or stop it")
    locks = tmp_path / "runs" / ".locks"
    assert list(locks.iterdir())
    with folder.locked():
        pass
    assert not list(locks.iterdir())


def test_a_command_of_any_bytes_does_not_cost_the_summary(tmp_path):
    """It is read when the training is over."""
    (tmp_path / "command.txt").write_bytes(b"python \xff scripts/x.py\n")
    assert RunFolder(tmp_path).command() == "python \ufffd scripts/x.py"
