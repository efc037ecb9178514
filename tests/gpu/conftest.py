"""The small runs of the end-to-end tests, on a GPU."""

from tests.e2e.conftest import arguments, corpus

__all__ = ["arguments", "corpus"]
