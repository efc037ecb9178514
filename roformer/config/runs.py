"""The config of each pipeline's runs, and the part of a recorded config that changes the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roformer.config.build import configuration, free_keys
from roformer.pipelines import registry

RUNS: dict[str, type] = {
    name: registry.load(pipeline.config_of_run)
    for name, pipeline in registry.pipelines().items()
    if not pipeline.runs
}
"""Pipeline → config class of its runs."""


def settings_but_seed(pipeline: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded config without its seed and the keys that change no result.

    Args:
        pipeline: whose run it is; of one that is not ours all counts.
        config: the record's, as plain data.
    """
    return configuration(RUNS[pipeline], config) if pipeline in RUNS else dict(config)


def changes_result(pipeline: str, key: str) -> bool:
    """Tell whether a dotted key of a recorded config is part of the configuration, as the seed is not."""
    parts = tuple(key.split("."))
    free = free_keys(RUNS[pipeline]) if pipeline in RUNS else set()
    return parts != ("seed",) and not any(parts[: len(one)] == one for one in free)
