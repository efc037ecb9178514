"""The runs to analyse are the end-to-end tests' runs."""

from tests.e2e.conftest import arguments, corpus

__all__ = ["arguments", "corpus"]
