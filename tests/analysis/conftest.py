"""Runs to analyse are those of the end-to-end tests."""

from tests.e2e.conftest import arguments, corpus

__all__ = ["arguments", "corpus"]
