"""Runs to analyse are those of the end-to-end tests."""

from tests.e2e.conftest import arguments, corpus, stop_at

__all__ = ["arguments", "corpus", "stop_at"]
