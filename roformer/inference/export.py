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

from roformer.errors import InputError
from roformer.inference.generate import load_generator
from roformer.inference.load import load_model
from roformer.inference.names import EXPORT, find
from roformer.inference.translate import load_translator
from roformer.interop.card import Record, model_card
from roformer.interop.equivalents import (
    ExportedModel,
    Head,
    NoEquivalent,
    exported_causal_lm,
    exported_encoder,
    exported_translation,
)
from roformer.interop.tokenizers import save_bpe, save_bytes, save_prompts, save_wordpiece
from roformer.training import checkpoint
from roformer.training.averaging import ACCOUNT, AVERAGED, choose
from roformer.training.records import read_metrics
from roformer.training.tensors import system_error

RECORDS = ("config.yaml", "env.json", "command.txt", "metrics.jsonl", "summary.json")
SPELLING = (
    "The spelling of a special token in a text, `[MASK]` or `[SEP]`, is that token here; in "
    "`roformer` it is text (`split_special_tokens=True` gives those ids)."
)
EMPTY_SECOND = (
    "`pipeline` takes an empty second text for no second text; the tokenizer called with a list of "
    "pairs does not."
)
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
    convert = {"translation": _translation, "causal": _causal_lm}.get(record.kind, _encoder)
    partial = output.absolute().with_name(f".{output.absolute().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        try:
            notes = convert(record, partial)
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


# --- a folder of transformers ----------------------------------------------------------------------


def _encoder(record: Record, folder: Path) -> tuple[str, ...]:
    trained, description = load_model(record.checkpoint), record.description
    encoder: Any = trained.model.encoder
    classifies = record.kind == "classifier"
    length = (
        description["max_length"] if classifies else record.config["training"]["sequence_length"]
    )
    exported = exported_encoder(
        encoder.config,
        trained.model.state_dict(),
        vocab_size=description["vocab_size"],
        pad_id=trained.tokenizer.pad_id,
        length=length,
        head=Head(trained.labels, description["head_dropout"]) if classifies else None,
    )
    _save(exported, folder)
    limit = length if classifies else exported.length
    save_wordpiece(trained.tokenizer, folder, max_length=limit, special_as_text=classifies)
    if classifies:
        return (*exported.notes, EMPTY_SECOND) if trained.texts == 2 else exported.notes
    room = f"It reads at most {exported.length} tokens and was trained on {length}."
    return (*exported.notes, room, SPELLING)


def _translation(record: Record, folder: Path) -> tuple[str, ...]:
    translator = load_translator(record.checkpoint)
    tokenizer = translator.tokenizer
    exported = exported_translation(
        translator.model.config,
        translator.model.state_dict(),
        translator.search,
        vocab_size=tokenizer.size,
        pad_id=tokenizer.pad_id,
        end_id=tokenizer.end_id,
        max_length=record.description["max_length"],
    )
    _save(exported, folder)
    save_bpe(record.run / "tokenizer", tokenizer, folder, max_length=exported.length)
    return exported.notes if tokenizer.words == "bytes" else (*exported.notes, MOSES)


def _causal_lm(record: Record, folder: Path) -> tuple[str, ...]:
    generator = load_generator(record.checkpoint)
    tokenizer = getattr(generator.codec, "tokenizer", None)
    if tokenizer and tokenizer.words != "none":
        raise NoEquivalent("no tokenizer of a causal model there cuts Chinese into words")
    exported = exported_causal_lm(
        generator.model.config,
        generator.model.state_dict(),
        vocab_size=record.description["vocab_size"],
        length=generator.length,
        end_id=generator.codec.end_id,
        pad_id=tokenizer and tokenizer.pad_id,
    )
    _save(exported, folder)
    room = f"It was trained on texts of {generator.length} {record.description['reads']}."
    if tokenizer is None:
        save_bytes(folder, max_length=exported.length)
        return (*exported.notes, room)
    save_prompts(tokenizer, folder, max_length=exported.length)
    begins = "Its tokenizer begins a prompt with the end of the document before."
    return (*exported.notes, room, begins)


def _save(exported: ExportedModel, folder: Path) -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    exported.model.save_pretrained(folder)
    mode = (folder / "config.json").stat().st_mode
    for file in folder.glob("*.safetensors"):  # written for its owner alone, whatever the umask is
        file.chmod(mode)


# --- a folder of roformer -----------------------------------------------------------------------------


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
