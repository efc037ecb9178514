"""Settings of a training that starts from trained weights, which have a model and a tokenizer already."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from roformer.config.build import build, plain
from roformer.errors import InputError

AUTO = "auto"
"""`init_from` of a fine-tuning that starts with the pre-training of the same model."""
SCRATCH = "scratch"
"""`init_from` of a fine-tuning with random weights."""
FREE = ("name", "size", "hidden_dropout", "attention_dropout", "init_std", "position")
"""Settings in which a model may differ from the weights that it starts from."""
SIZES = ("size", "layers", "hidden_size", "heads", "intermediate_size")
"""Settings of the group `model/size`."""


class Weights(NamedTuple):
    """Settings of trained weights."""

    model: dict[str, Any]
    vocabulary: int | None
    """Size of the vocabulary of published weights; None: the weights are of a run."""


def fixed(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a model shares with the weights that it starts from."""
    return {key: value for key, value in model.items() if key not in FREE}


def of_parameters(position: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a position encoding that its parameters depend on."""
    return {key: value for key, value in position.items() if key != "scaling"}


def adopt(
    config: Mapping[str, Any],
    cls: type,
    weights: Weights,
    typed: Collection[str],
    groups: Collection[str],
) -> dict[str, Any]:
    """Return the sections of a composed config, with a model of class `cls`, that the weights change.

    The command line has the keys `typed`; of the `groups` it or the recipe chooses an option.
    """
    if config.get("objective") == "match" and "model" in typed:
        raise InputError(
            f"model={config['model']['name']}: a conversion takes its model from the weights: leave it out, "
            "and choose model/position=…"
        )
    changed = {}
    if not _agrees(config["model"], cls, weights.model):
        changed["model"] = _model(config["model"], weights.model, typed, groups)
    if weights.vocabulary is not None and "data.tokenizer.source" not in typed:
        if rules := sorted(key for key in typed if key.startswith("data.tokenizer.")):
            raise InputError(
                f"{rules[0]} is of a vocabulary that is trained, but init_from={config['init_from']} "
                "brings its own: leave it out"
            )
        changed["data.tokenizer"] = {"source": "init_from", "vocab_size": weights.vocabulary}
    return changed


def typed_keys(overrides: Sequence[str]) -> set[str]:
    """Return the dotted keys of overrides, and the names of their groups."""
    return {word.partition("=")[0].lstrip("+~").replace("/", ".") for word in overrides}


def of_the_weights(typed: Collection[str]) -> set[str]:
    """Return the typed keys and groups of the model, which trained weights have already, without dropout."""
    free = ("model.hidden_dropout", "model.attention_dropout")
    return {key for key in typed if f"{key}.".startswith("model.") and key not in free}


def check_model(config: Mapping[str, Any], weights: Weights, overrides: Sequence[str]) -> None:
    """Raise InputError if a fine-tuning's command line chooses another model than its weights have."""
    for word in overrides:
        for key in of_the_weights(typed_keys([word])):
            ours, theirs = (_part(model, key) for model in (config["model"], weights.model))
            if ours != theirs:
                convert = " (make convert changes positions)" if "position" in key else ""
                raise InputError(
                    f"{word.lstrip('+')}: init_from={config['init_from']} was trained with {theirs}: "
                    f"remove this override, or give other weights{convert}"
                )


def _part(model: Mapping[str, Any], key: str) -> Any:
    """Return what a key or a group chooses of a model: a value, a name, or several settings."""
    if key == "model.size":
        return ", ".join(f"{name}={model[name]}" for name in SIZES[1:])
    if key in ("model", "model.position", "model.attention"):
        key += ".name" if key == "model" else ".kind"
    found: Any = model
    for name in key.split(".")[1:]:
        found = (found or {}).get(name)
    return found


def _agrees(composed: Mapping[str, Any], cls: type, weights: Mapping[str, Any]) -> bool:
    """Return whether a model can start from the weights as it is."""
    try:
        model = plain(build(cls, composed))
    except InputError:  # sizes that only fit together with the others of the weights
        return False
    encodings = [of_parameters(each["position"]) for each in (model, weights)]
    return fixed(model) == fixed(weights) and encodings[0] == encodings[1]


def _model(
    composed: Mapping[str, Any],
    weights: Mapping[str, Any],
    typed: Collection[str],
    groups: Collection[str],
) -> dict[str, Any]:
    """Return the model of the weights, with what was typed, and the positions that were chosen."""
    keys = {key.split(".")[1] for key in typed if key.startswith("model.")} - {"position"}
    keys |= {"hidden_dropout", "attention_dropout"} | ({*SIZES} if "size" in keys else set())
    model = {**weights, **{key: composed[key] for key in keys if key in composed}}
    # Another label belongs to other sizes.
    if all(composed.get(key) == weights[key] for key in SIZES[1:]):
        model["size"] = composed["size"]
    position, theirs = composed["position"], weights["position"]
    chosen = {"model", "model/position"} & {*groups} or {
        "model.position",
        "model.position.kind",
    } & {*typed}
    if chosen and position["kind"] != theirs["kind"]:
        return model | {"position": position, "name": composed["name"]}
    settings = {key.split(".")[2] for key in typed if key.startswith("model.position.")}
    model["position"] = {**theirs, **{key: position[key] for key in settings & {*position}}}
    return model | ({"name": composed["name"]} if "model" in groups else {})
