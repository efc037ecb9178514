"""A run as a folder that `transformers` opens, or, where it has no such model, that `roformer` opens.

    <output>/   config.json model.safetensors tokenizer.json tokenizer_config.json README.md …
    <output>/   checkpoints/ tokenizer/ config.yaml env.json … README.md     a run with one checkpoint

Written aside and renamed, so that the folder is whole or not there.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from safetensors import SafetensorError

from roformer.data.bpe import Bpe
from roformer.errors import InputError
from roformer.inference.names import EXPORT, find
from roformer.inference.open import StoredModel, open_model
from roformer.interop.card import Record, model_card
from roformer.interop.equivalents import NoEquivalent, equivalent
from roformer.interop.tokenizers import save_tokenizer
from roformer.training import checkpoint
from roformer.training.averaging import ACCOUNT, AVERAGED, choose
from roformer.training.checkpoint import system_error
from roformer.training.records import read_metrics

RECORDS = ("config.yaml", "env.json", "command.txt", "metrics.jsonl", "summary.json")
SPELLING = (
    "The spelling of a special token in a text, `[MASK]` or `[SEP]`, is that token here; in "
    "`roformer` it is text (`split_special_tokens=True` gives those ids)."
)
EMPTY_SECOND = (
    "`pipeline` takes an empty second text for no second text; the tokenizer called with a list of "
    "pairs does not."
)
PROMPTS = "Its tokenizer begins a prompt with the end of the document before."
MOSES = (
    "The tokenizer takes Moses tokens: tokenise before it and detokenise after it with "
    "sacremoses, as shown; text as it is gives other ids."
)


class Export(NamedTuple):
    """A written export."""

    folder: Path
    checkpoint: str
    """Name of the checkpoint."""
    kind: str | None
    """`model_type` of `transformers`, or None where the folder is of `roformer`."""
    notes: tuple[str, ...]
    """Sentences for its user; why it is of `roformer`, where it is."""


def export(run: Path, output: Path | None = None, which: str | None = None) -> Export:
    """Write a trained model as a folder of its own.

    Args:
        run: the run's folder, or its id below runs/.
        output: the folder to make, not there yet or empty; None: `<runs>/export/<run id>`.
        which: `step_…`, `best`, `last` or `averaged`; None: the checkpoint that `load_model`,
            `load_translator` or `load_generator` chooses.

    Raises:
        InputError: it is no run, or one of triplets; it has no such complete
            checkpoint; or the output is there already.
        OSError: the disk is full or not writable; nothing is left behind.
    """
    run = Path(find(run))
    record = read_record(run, which)
    if record.kind == "scorer":
        raise InputError(
            f"{run} scores pairs of documents, of which transformers has no model: its scores are in "
            f"{run / 'predictions'}"
        )
    output = output or run.resolve().parents[1] / EXPORT / run.resolve().name
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise InputError(f"{output} is there already and not empty: choose another --output")
    partial = output.absolute().with_name(f".{output.absolute().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        try:
            notes = _convert(record, partial)
            kind = json.loads((partial / "config.json").read_text())["model_type"]
        except NoEquivalent as reason:
            _own(record, partial)
            kind, notes = None, (f"transformers has no such model: {reason}.",)
        model_card(record, kind, notes).save(partial / "README.md")
        partial.replace(output)
    except SafetensorError as error:
        raise system_error(error, partial) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Export(output, record.checkpoint.name, kind, notes)


def read_record(run: Path, which: str | None) -> Record:
    """Read the record of a run and of the checkpoint to export.

    Raises:
        InputError: see `export`.
    """
    if not run.exists():
        raise InputError(f"{run}: no such run: give a folder under runs/")
    needed = ("checkpoints", "tokenizer", "config.yaml", "env.json")
    if lacking := [name for name in needed if not (run / name).exists()]:
        raise InputError(
            f"{run} is not a run's folder, it has no {', '.join(lacking)}: give one under runs/, and "
            "a certain checkpoint of it with --checkpoint"
        )
    folder, summary, metrics = choose(run, which), run / "summary.json", run / "metrics.jsonl"
    config: Any = OmegaConf.to_container(OmegaConf.load(run / "config.yaml"))
    return Record(
        run=run,
        checkpoint=folder,
        description=checkpoint.describe(folder),
        config=config,
        environment=json.loads((run / "env.json").read_text()),
        command=(run / "command.txt").read_text().strip(),
        summary=json.loads(summary.read_text()) if summary.is_file() else {},
        rows=read_metrics(metrics, torn=True) if metrics.is_file() else [],
    )


def _convert(record: Record, folder: Path) -> tuple[str, ...]:
    """Write a folder of `transformers`; return the notes on it.

    Raises:
        NoEquivalent: it has no such model.
    """
    from transformers.utils import logging

    opened, description = open_model(record.checkpoint), record.description
    assert isinstance(opened, StoredModel)
    length = description.get("max_length") or description.get("length")
    length = length or record.config["training"]["sequence_length"]
    exported = equivalent(description, opened.config, opened.weights, opened.tokenizer, length)
    logging.disable_progress_bar()
    exported.model.save_pretrained(folder)
    mode = (folder / "config.json").stat().st_mode
    for file in folder.glob("*.safetensors"):  # written for its owner alone, whatever the umask is
        file.chmod(mode)
    limit, notes = exported.length, exported.notes
    if record.kind == "mlm":
        notes += (f"It reads at most {limit} tokens and was trained on {length}.", SPELLING)
    elif record.kind == "classifier":
        limit = length
        notes += (EMPTY_SECOND,) if len(description["texts"]) == 2 else ()
    elif record.kind == "causal":
        notes += (f"It was trained on texts of {length} {description['reads']}.",)
        notes += (PROMPTS,) if description["reads"] == "tokens" else ()
    elif isinstance(opened.tokenizer, Bpe) and opened.tokenizer.words == "moses":
        notes += (MOSES,)
    save_tokenizer(opened.tokenizer, folder, record.kind, max_length=limit)
    return notes


def _own(record: Record, folder: Path) -> None:
    """Write a run with this one checkpoint, without moments, which opens as the run does."""
    shutil.copytree(record.run / "tokenizer", folder / "tokenizer")
    for name in RECORDS:
        if (record.run / name).is_file():
            shutil.copyfile(record.run / name, folder / name)
    name = record.checkpoint.name
    # An average is looked for in translation alone.
    if name == AVERAGED and record.kind != "translation":
        name = json.loads((record.checkpoint / ACCOUNT).read_text())["checkpoints"][-1]
    target = folder / "checkpoints" / name
    target.mkdir(parents=True)
    for name in (checkpoint.MODEL, checkpoint.DESCRIPTION, ACCOUNT):
        if (record.checkpoint / name).is_file():
            shutil.copyfile(record.checkpoint / name, target / name)
    checkpoint.complete(target)
