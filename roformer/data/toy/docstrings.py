"""English that is already on the machine: the docstrings of the pinned scientific packages.

About 32 MB of technical prose in some 5,600 documents, without a network. The files are parsed with
`ast`, never imported.

One document is one module: its docstring and the docstrings of its classes and functions, in source order,
blank lines between. Documents are uneven (median 2 KB, the largest 370 KB), but near-identical parameter
lists of one module stay on one side of the train/valid split.

The corpus is a function of the packages' versions: distributions in the order below, files by sorted name,
each docstring where it comes first. Files that differ between builds of one version are excluded by name.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from roformer.data.work import worker_pool
from roformer.errors import InputError

DISTRIBUTIONS = {
    name: {"scikit-learn": "sklearn"}.get(name, name)
    for name in (
        *("numpy", "scipy", "scikit-learn", "pandas", "sympy", "networkx"),
        *("torch", "transformers", "datasets", "accelerate"),
    )
}
"""Distribution -> its package folder, in the order of the corpus; they come with the extra `train`."""
SKIPPED = {
    # Tests say little in English; vendored code is another package's.
    *("tests", "test", "testing", "externals", "_vendor", "vendored_templates"),
    "distutils",  # numpy ships it for Python 3.11 and not for 3.12
    *("version.py", "_version.py", "__config__.py"),  # written by the build
}
"""Folders and files that are excluded."""
MIN_WORDS = 5
MIN_TEXT_SHARE = 0.6
"""Letters and spaces over all characters; below it is a table or a drawing (0.2 % of all)."""


def docstring_packages(distributions: Iterable[str] = DISTRIBUTIONS) -> dict[str, str]:
    """Return the version of each distribution that is installed, without its local part.

    That (`+cpu`, `+cu130`) names the build, not the text.
    """
    versions = {}
    for name in distributions:
        try:
            versions[name] = metadata.version(name).split("+")[0]
        except metadata.PackageNotFoundError:
            continue
    if not versions:
        raise InputError(
            f"data=builtin reads the docstrings of packages, but no package of "
            f"{', '.join(distributions)} is installed: run `make setup`, or use data=files"
        )
    return versions


def docstring_documents(
    distributions: Iterable[str] = DISTRIBUTIONS,
    *,
    workers: int | None = None,
    skipped: list[str] | None = None,
    shuffled: bool = False,
) -> Iterator[str]:
    """Yield one document per module, with every docstring of the corpus at most once.

    `skipped` receives the name of each file that cannot be parsed. `shuffled` means in the order of the
    SHA-256 of the files' names, which mixes the packages. `workers` processes parse (null: one per core).
    """
    files = [file for name in docstring_packages(distributions) for file in _source_files(name)]
    if shuffled:
        files.sort(key=lambda file: hashlib.sha256(file[0].encode()).digest())
    seen: set[bytes] = set()
    parsed = _parse([path for _, path in files], workers)
    for (name, _), docstrings in zip(files, parsed, strict=True):
        if docstrings is None and skipped is not None:
            skipped.append(name)
        new = []
        for docstring in docstrings or ():
            digest = hashlib.blake2b(" ".join(docstring.split()).encode(), digest_size=16).digest()
            if digest not in seen:
                seen.add(digest)
                new.append(docstring)
        if new:
            yield "\n\n".join(new)


def _source_files(name: str) -> list[tuple[str, str]]:
    """List a distribution's modules as (name inside site-packages, path), sorted by name."""
    distribution, package = metadata.distribution(name), DISTRIBUTIONS[name]
    root = Path(str(distribution.locate_file("")))
    listed: Iterable[Path] = map(Path, distribution.files or ())
    if distribution.files is None:  # installed without a RECORD (some system packages)
        listed = (path.relative_to(root) for path in (root / package).rglob("*.py"))
    kept = (path for path in listed if path.suffix == ".py" and path.parts[0] == package)
    names = sorted(path.as_posix() for path in kept if SKIPPED.isdisjoint(path.parts))
    return [(name, str(root / name)) for name in names]


def _parse(paths: list[str], workers: int | None) -> Iterator[list[str] | None]:
    """Yield the docstrings of each file, in the order given."""
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        yield from map(module_docstrings, paths)
        return
    # A syntax tree has few cycles; looking for them costs a quarter of the time.
    with worker_pool(workers, initializer=gc.disable) as pool:
        yield from pool.map(module_docstrings, paths, chunksize=32)


def module_docstrings(path: str) -> list[str] | None:
    """Return the docstrings of a file that are text, in source order; None if it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            module = ast.parse(Path(path).read_bytes())
        return [docstring for docstring in _docstrings(module) if _is_text(docstring)]
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _docstrings(node: ast.AST) -> Iterator[str]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(node, documented) and (docstring := ast.get_docstring(node)):
        yield docstring
    for child in ast.iter_child_nodes(node):
        # Definitions are statements; going down into expressions would double the time.
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _docstrings(child)


def _is_text(docstring: str) -> bool:
    try:
        docstring.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: an escape that no file can hold
        return False
    text = sum(map(str.isalpha, docstring)) + sum(map(str.isspace, docstring))
    return len(docstring.split()) >= MIN_WORDS and text >= MIN_TEXT_SHARE * len(docstring)
