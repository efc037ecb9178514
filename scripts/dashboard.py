"""Look at run records in a browser: `python scripts/dashboard.py`, or `--output dashboard.html`.

Serves a page of the runs below experiments/ and runs/ on 127.0.0.1, read anew at every refresh; an open
page asks for new records every few seconds. With --output the page is written to one file, which needs
neither this server nor a network.
"""

import argparse
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from roformer.cli import one_line_errors
from roformer.errors import InputError
from roformer.report.dashboard.page import build_page, data_json
from roformer.report.dashboard.records import read_runs
from roformer.report.dashboard.server import DashboardServer
from roformer.report.reproduction import Row, read_reproduction
from roformer.report.runs import METRICS, RUNS, RecordError, Runs
from roformer.report.sections import sections_of
from roformer.report.tables import Table
from roformer.training.records import write_atomically

Sections = Mapping[str, Sequence[Table]]
DEFAULT_ROOTS = [Path("experiments"), Path("runs")]


def main(sections: Callable[[], Sections] = dict) -> None:
    """Serve or write the page.

    Args:
        sections: makes the report's tables under their headings, anew for each page.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("roots", nargs="*", type=Path, help="default: experiments and runs")
    parser.add_argument("--port", type=int, default=8600, help="if taken, the next free one")
    parser.add_argument("--output", type=Path, help="write the page to this file and serve nothing")
    arguments = parser.parse_args()
    with one_line_errors():
        for root in arguments.roots:
            if not root.is_dir():
                raise InputError(f"{root} is no folder: give such as experiments or runs")
        roots = arguments.roots or DEFAULT_ROOTS
        if arguments.output is not None:
            records = read_runs(roots)
            rows = rows_of(roots, records)
            write(arguments.output, build_page(records, sections(), rows=rows))
        else:
            serve(roots, sections, arguments.port)


def write(path: Path, page: str) -> None:
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: give a file in a folder that is there")
    write_atomically(path, page)
    print(f"{path}: {len(page.encode()) / 1e6:.1f} MB, opens without a network")


def serve(roots: Sequence[Path], sections: Callable[[], Sections], port: int) -> None:
    if not 0 <= port < 2**16:
        raise InputError(f"--port {port} is no port: give one from 1024 to 65535")
    one_at_a_time = threading.Lock()  # the reader keeps what it read

    def page() -> str:
        with one_at_a_time:
            records = read_runs(roots)
            rows = rows_of(roots, records)
            return build_page(records, sections(), rows=rows, live=True)

    def data() -> str:
        with one_at_a_time:
            records = read_runs(roots)
            rows = rows_of(roots, records)
            return data_json(records, sections(), rows=rows, live=True)

    try:
        server = DashboardServer(port, page, data)
    except OSError as error:
        raise InputError(
            f"no port can be had: {error.strerror}; choose another one by --port"
        ) from error
    print(f"{server.address} (Ctrl-C ends it)", flush=True)
    try:
        with server:
            server.serve_forever()
    except KeyboardInterrupt:
        print("\nstopped")


def rows_of(roots: Sequence[Path], records: Runs) -> list[Row]:
    """Return the page's first table; none where no root has the paper's numbers or they are damaged."""
    try:
        return [row for root in roots for row in read_reproduction(root, records)]
    except RecordError:  # the sections tell which file, and what is wrong with it
        return []


class FreshSections:
    """The tables of the records below experiments/ and runs/, made again when a summary changed."""

    def __init__(self) -> None:
        self.state: list[tuple[str, int]] = []
        self.sections: Sections = {}

    def __call__(self) -> Sections:
        experiments, runs = DEFAULT_ROOTS
        files = [*experiments.glob("*.yaml"), *experiments.glob("*/study.yaml")]
        files += [*experiments.glob(f"*/{RUNS}"), *experiments.glob(f"*/{METRICS}")]
        files += runs.glob("*/*/summary.json")
        state = sorted((str(file), file.stat().st_mtime_ns) for file in files)
        if state != self.state:
            self.sections, self.state = sections_of(experiments, runs), state
        return self.sections


if __name__ == "__main__":
    main(FreshSections())
