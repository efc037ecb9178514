"""A pre-training run opened again with its text, for whatever measures it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from roformer.config.attention import SoftmaxAttention
from roformer.config.build import from_yaml
from roformer.config.schema import PretrainConfig
from roformer.data.text import PreparedText, prepare_text
from roformer.errors import InputError
from roformer.training import checkpoint
from roformer.training.averaging import choose
from roformer.training.records import RunFolder


class Pretrained(NamedTuple):
    """A pre-training run and the text that it was trained on."""

    folder: Path
    config: PretrainConfig
    shards: PreparedText


def open_pretrained(run: Path, cache_dir: str | None = None) -> Pretrained:
    """Return a run with its text, whose validation part is what the run's training held out.

    Args:
        run: a folder under runs/pretrain/.
        cache_dir: where the prepared text is; None: where the run had it.

    Raises:
        InputError: it is no pre-training or its config is damaged; its attention is not softmax, so
            that it has no scores; documents were isolated, so that what is measured over whole
            sequences has no meaning; its text is another one by now.
    """
    file = run / "config.yaml"
    if not file.is_file() or checkpoint.describe(choose(run))["kind"] != "mlm":
        raise InputError(f"{run} is no pre-training run: give a folder under runs/pretrain/")
    try:
        config = from_yaml(PretrainConfig, file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, InputError) as error:
        raise InputError(f"{file} is damaged ({error}): give another run") from error
    if not isinstance(config.model.attention, SoftmaxAttention):
        raise InputError(
            f"{run} has {config.model.attention.kind} attention, which has no scores to measure or to "
            "scale: give a run with softmax"
        )
    if config.training.documents == "isolate":
        raise InputError(
            f"{run} was trained with training.documents=isolate, where a token sees and counts its own "
            "document alone: give a run with cross"
        )
    shards = prepare_text(
        config.data,
        cache_dir or config.runtime.cache_dir,
        workers=config.runtime.prepare_workers,
        progress=False,
    )
    if shards.fingerprint != (begun_on := RunFolder(run).data()):
        raise InputError(
            f"{run} was trained on other text (fingerprint {str(begun_on)[:8]}, now "
            f"{shards.fingerprint[:8]}): restore it, so that what was held out still is"
        )
    return Pretrained(run, config, shards)
