"""Prepared data for the tests of hostile caches."""

import json
import shutil

import pytest

from tests.property.hostile_cache import MAKE, read


@pytest.fixture(scope="module", params=MAKE)
def prepared(request, tmp_path_factory):
    """Return the kind, a prepared folder, and what is read from it."""
    folder = MAKE[request.param](tmp_path_factory.mktemp(request.param) / "source")
    return request.param, folder, read(request.param, folder)


@pytest.fixture
def copied(prepared, tmp_path):
    """Return the kind, a copy that a test may change, and its manifest."""
    kind, folder, _ = prepared
    shutil.copytree(folder, tmp_path / "cache" / "key")
    return kind, tmp_path / "cache" / "key", json.loads((folder / "manifest.json").read_text())
