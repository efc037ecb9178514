"""Run scripts in separate processes that start at once: forked from a server that imported torch.

The server has computed nothing, so its children are as good as new processes. What a start imports is
tested with real ones (tests/conf).
"""

import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from tests.conftest import REPOSITORY

HEAVY = [
    "torch",
    "transformers",
    "datasets",
    "roformer.evaluation.glue_metrics",
    "roformer.pipelines.glue",
    "roformer.tasks.translation",
]


class Script:
    """A script in a process of its own, the first of a process group.

    Args:
        script: its name in scripts/, without `.py`; or a path.
        *arguments: words, paths, numbers.
        stdin: text or bytes.
        cwd: folder that it runs in.
        env: environment variables that differ from this process's variables; None removes one.
        before: what the process calls before the script.
    """

    def __init__(self, script, *arguments, stdin="", cwd=REPOSITORY, env=None, before=None):
        path = REPOSITORY / "scripts" / f"{script}.py" if Path(script).suffix == "" else script
        self.words = [str(path), *map(str, arguments)]
        self.folder = tempfile.TemporaryDirectory()
        self.streams = [Path(self.folder.name, name) for name in ("in", "out", "err")]
        self.streams[0].write_bytes(stdin if isinstance(stdin, bytes) else stdin.encode())
        variables = {k: v for k, v in {**os.environ, **(env or {})}.items() if v is not None}
        given = (self.words, str(cwd), variables, self.streams, before)
        self.process = forkserver().Process(target=_run, args=given)
        self.process.start()

    def end(self, timeout=300):
        """Wait for the end; return what `subprocess.run` with captured text does."""
        with self.folder:
            self.process.join(timeout)
            if self.process.exitcode is None:
                self.process.kill()
                raise subprocess.TimeoutExpired(self.words, timeout)
            out, err = (path.read_bytes().decode() for path in self.streams[1:])
        return subprocess.CompletedProcess(self.words, self.process.exitcode, out, err)


def run_script(script, *arguments, timeout=300, **options):
    """Run a script to its end; see `Script`."""
    return Script(script, *arguments, **options).end(timeout)


def until(condition, seconds=120):
    """Wait until something is true, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return found


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


@cache
def forkserver():
    """Return the context of processes that begin with all imports of a training."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*HEAVY, __name__])
    return context


def _run(words, folder, variables, streams, before):
    os.setsid()
    multiprocessing.set_start_method(None, force=True)  # of a new process, not of the server's
    for number, (stream, mode) in enumerate(zip(streams, ("rb", "wb", "wb"), strict=True)):
        with stream.open(mode) as file:
            os.dup2(file.fileno(), number)
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.path[:0] = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = words
    if before is not None:
        before()
    code = None
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as left:
        code = left.code
    sys.exit(code)  # out here, where no frame of the script keeps its data loader's workers
