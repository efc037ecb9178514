"""Show run records in a browser: `python scripts/dashboard.py`, or `--output dashboard.html`.

Serves a page of the runs below experiments/ and runs/ on 127.0.0.1. It reads the records at every refresh,
and an open page polls for new records every few seconds. With --output the page is written to one file,
which needs neither this server nor a network.
"""

import threading
from contextlib import suppress
from pathlib import Path

from roformer.errors import InputError
from roformer.report.dashboard.page import build_page, data_json
from roformer.report.dashboard.server import DashboardServer
from roformer.report.pages import Sections, script_of, sections_of
from roformer.report.runs import RecordError, read_runs
from roformer.script import Arguments, script
from roformer.training.records import write_atomically

DEFAULT_ROOTS = [Path("experiments"), Path("runs")]


class Content:
    """The page's data from some roots; the tables are made again after a run has ended."""

    def __init__(self, roots: list[Path]) -> None:
        self.roots = roots
        self.ended: list[float] | None = None
        self.sections: Sections = {}
        self.lock = threading.Lock()

    def read(self) -> str:
        """Return the page's data from the current records."""
        with self.lock:
            runs, results = read_runs(self.roots, strict=False), None
            ended = runs.runs.loc[runs.runs["status"] != "running", "written"].tolist()
            if self.roots == DEFAULT_ROOTS and ended != self.ended:
                self.sections, self.ended = sections_of(*self.roots), ended
            with suppress(RecordError):  # a section has the message
                reproduce = script_of("appendix/reproduce")
                rows = [
                    row for root in self.roots for row in reproduce["read_reproduction"](root, runs)
                ]
                results = reproduce["result_table"](rows, runs.runs)
            return data_json(runs, self.sections, results)


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("roots", nargs="*", type=Path, help="default: experiments and runs")
    parser.add_argument("--port", type=int, default=8600, help="if taken, the next free one")
    parser.add_argument("--output", type=Path, help="write the page to this file and serve nothing")
    arguments = parser.parse_args()
    for root in arguments.roots:
        if not root.is_dir():
            raise InputError(f"{root} is no folder: give such as experiments or runs")
    content = Content(arguments.roots or DEFAULT_ROOTS)
    if path := arguments.output:
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(f"{path} cannot be written: give a file in a folder that is there")
        page = build_page(content.read())
        write_atomically(path, page)
        print(f"{path}: {len(page.encode()) / 1e6:.1f} MB, opens without a network")
        return
    if not 0 < arguments.port < 2**16:
        raise InputError(f"--port {arguments.port} is no port: give one from 1024 to 65535")
    try:
        server = DashboardServer(
            arguments.port, lambda: build_page(content.read(), live=True), content.read
        )
    except OSError as error:
        raise InputError(f"no free port: {error.strerror}; choose one by --port") from error
    print(f"{server.address} (Ctrl-C ends it)", flush=True)
    try:
        with server:
            server.serve_forever()
    except KeyboardInterrupt:
        print("\nstopped")


if __name__ == "__main__":
    main()
