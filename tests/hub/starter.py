"""A process that has imported what is slow and starts the project's scripts by forking itself.

Reads one JSON object a line: {"command": [script, argument, …], "folder": …, "fast_clock": bool}.
Each command runs in a process of its own, with its standard output and error in `folder`; answers
{"code": exit code, "slept": seconds that it asked to sleep}. With `fast_clock` nobody waits: a
client's pauses between retries are added up instead.
"""

import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path

import datasets  # noqa: F401
from transformers import AutoConfig, AutoModel  # noqa: F401

LIMIT = 170
"""Seconds after which a command that hangs is ended."""


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        folder = Path(order["folder"])
        child = os.fork()
        if child == 0:
            run(order["command"], folder, order["fast_clock"])
        _, status = os.waitpid(child, 0)
        slept = folder / "slept"
        seconds = float(slept.read_text()) if slept.exists() else 0.0
        answer = {"code": os.waitstatus_to_exitcode(status), "slept": seconds}
        print(json.dumps(answer), flush=True)


def run(command: list[str], folder: Path, fast_clock: bool) -> None:
    """Become the command; does not return."""
    code = 1
    try:
        signal.alarm(LIMIT)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(folder)
        if fast_clock:
            count_sleep(folder / "slept")
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def count_sleep(file: Path) -> None:
    slept = 0.0

    def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds
        file.write_text(str(slept))

    time.sleep = sleep


if __name__ == "__main__":
    main()
