"""Run the project's scripts in separate processes, forked from one that has imported what is slow.

That process reads a JSON array per line, (folder, patience, script, argument, …), and answers with
the exit code; standard output and error of the script are files in the folder.
"""

import json
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import time
from typing import NamedTuple

from tests.conftest import REPOSITORY

LIMIT = 170
"""Seconds after which a script that hangs is ended."""
LOCAL = {"localhost", "127.0.0.1", "::1", None, ""}


class Done(NamedTuple):
    """Result of a script."""

    code: int
    output: str
    errors: str


class Starter:
    """The process; its scripts reach `endpoint` and nothing else. A context manager.

    Whom else they tried to reach is written into `escapes`.
    """

    def __init__(self, endpoint, home, **more):
        self.home, self.escapes = home, home.with_name("escapes")
        self.escapes.touch()
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        ours = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.hub.starter"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env=kept | ours | {"ESCAPES": str(self.escapes)} | more,
        )

    def __call__(self, folder, script, *arguments, patience=None):
        """Run a script to its end.

        With `patience` nobody waits for the pauses of a client: they are added up, and more seconds
        than that end the script.
        """
        folder.mkdir(parents=True, exist_ok=True)
        order = [str(folder), patience, str(REPOSITORY / "scripts" / script), *arguments]
        print(json.dumps(order), file=self.process.stdin, flush=True)
        code = int(self.process.stdout.readline())
        return Done(code, *((folder / name).read_text() for name in ("stdout", "stderr")))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        self.process.wait(30)


def main():
    import datasets  # noqa: F401
    from transformers import AutoConfig, AutoModel  # noqa: F401

    stay_on_this_machine()
    for line in sys.stdin:
        child = multiprocessing.get_context("fork").Process(target=run, args=json.loads(line))
        child.start()
        child.join(LIMIT)
        child.kill()
        child.join()
        print(child.exitcode, flush=True)


def run(folder, patience, *command):
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.chdir(folder)
    if patience is not None:
        time.sleep = counted_sleep(patience)
    sys.argv = [*command]
    runpy.run_path(command[0], run_name="__main__")


def counted_sleep(patience):
    slept = 0.0

    def sleep(seconds):
        nonlocal slept
        slept += seconds
        if slept > patience:
            os._exit(99)

    return sleep


def stay_on_this_machine():
    known = socket.getaddrinfo

    def getaddrinfo(host, *rest, **options):
        name = host.decode() if isinstance(host, bytes) else host
        if name in LOCAL:
            return known(host, *rest, **options)
        with open(os.environ["ESCAPES"], "a") as notes:
            notes.write(f"{name}\n")
        raise socket.gaierror(socket.EAI_NONAME, f"{name} is not this machine")

    socket.getaddrinfo = getaddrinfo


if __name__ == "__main__":
    main()
