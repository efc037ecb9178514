"""Run scripts in separate processes that start at once: forked from a server that imported torch.

The server has computed nothing, so its children are as good as new processes. What a start imports is
tested with real ones (tests/conf).
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.conftest import REPOSITORY

HEAVY = [
    "torch",
    "transformers",
    "datasets",
    "roformer.pipelines.glue",
    "roformer.tasks.translation",
]


def run_script(script, *arguments, stdin="", cwd=REPOSITORY, env=None, timeout=300):
    """Run a script; return what `subprocess.run` with captured text does.

    Args:
        script: its name in scripts/, without `.py`; or a path.
        *arguments: words, paths, numbers.
        stdin: text or bytes.
        cwd: folder that it runs in.
        env: environment variables in addition to this process's variables.
        timeout: seconds.
    """
    path = REPOSITORY / "scripts" / f"{script}.py" if Path(script).suffix == "" else Path(script)
    words = [str(path), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        streams[0].write_bytes(stdin if isinstance(stdin, bytes) else stdin.encode())
        variables = {**os.environ, **(env or {})}
        process = _context().Process(target=_run, args=(words, str(cwd), variables, streams))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(words, timeout)
        out, err = (path.read_bytes().decode() for path in streams[1:])
    return subprocess.CompletedProcess(words, process.exitcode, out, err)


@cache
def _context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*HEAVY, __name__])
    return context


def _run(words, folder, variables, streams):
    for number, (stream, mode) in enumerate(zip(streams, ("rb", "wb", "wb"), strict=True)):
        with stream.open(mode) as file:
            os.dup2(file.fileno(), number)
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.path[:0] = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
