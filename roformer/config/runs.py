"""The config of each pipeline's runs, and the part of a recorded config that changes the result."""

from __future__ import annotations

from roformer.config.build import free_keys
from roformer.pipelines import registry

RUNS: dict[str, type] = {
    name: registry.load(pipeline.config_of_run)
    for name, pipeline in registry.pipelines().items()
    if not pipeline.runs
}
"""Pipeline → config class of its runs."""


def changes_result(pipeline: str, key: str) -> bool:
    """Tell whether a dotted key of a recorded config is part of the configuration, as the seed is not."""
    parts = tuple(key.split("."))
    free = free_keys(RUNS[pipeline]) if pipeline in RUNS else set()
    return parts != ("seed",) and not any(parts[: len(one)] == one for one in free)
