"""Export a run as a folder that `transformers` opens, or, where it has no such model, `roformer`.

<output>/   config.json model.safetensors tokenizer.json tokenizer_config.json README.md …
            roformer.json of types that only `transformers` reads, to open it here again
<output>/   checkpoints/ tokenizer/ config.yaml env.json … README.md     a run with one checkpoint
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

from roformer.config.build import read_yaml
from roformer.data.bpe import Bpe
from roformer.errors import InputError
from roformer.inference.folders import new_folder, write_run
from roformer.inference.resolve import DESCRIPTION, EXPORT, RUNS, find, resolve
from roformer.interop.card import model_card
from roformer.interop.equivalents import NoEquivalent, equivalent
from roformer.interop.hugging_face import CONFIG
from roformer.interop.tokenizers import save_tokenizer
from roformer.models.description import StoredModel
from roformer.registry import Kind

KINDS: tuple[Kind, ...] = ("mlm", "classifier", "translation", "causal")
BEGUN = ("config.yaml", "env.json", "command.txt")
"""Records that a run has from its start; a folder of `TrainedModel.save` has none."""
RECORDS = (*BEGUN, "metrics.jsonl", "summary.json")
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
    "The tokenizer takes Moses tokens, in the code above too; plain text gives other ids. With sacremoses, "
    '`" ".join(MosesTokenizer("{}").tokenize(text, aggressive_dash_splits=True, escape=False))` makes '
    'them, and `MosesDetokenizer("{}").detokenize(text.split(), unescape=False)` gives a plain '
    "translation."
)


class Export(NamedTuple):
    """A written export."""

    folder: Path
    checkpoint: str  # its name
    kind: str | None  # `model_type` of `transformers`, or None for a folder of `roformer`
    notes: tuple[str, ...]  # sentences for its user, such as why it is a folder of `roformer`


def export(run: Path, output: Path | None = None, which: str | None = None) -> Export:
    """Write a trained model as a separate folder.

    Args:
        run: a run's folder or id; or, written without a card, a folder of `TrainedModel.save` or of a
            published masked LM, which becomes safetensors.
        output: a new or empty folder; None: `<runs>/export/<run id>`.
        which: name of a checkpoint; None: see `roformer.inference.resolve.choose`.
    """
    run = Path(find(run))
    published = (run / CONFIG).is_file()
    recorded = not published and any((run / name).exists() for name in RECORDS)
    names = sorted(each.name for each in run.glob("checkpoints/[!.]*"))
    if which not in (None, *names):
        raise InputError(
            f"{run} has no checkpoint {which}: choose one of {', '.join(names) or 'none'}"
        )
    source = run / "checkpoints" / which if which else run
    stored = resolve(source, ["mlm"] if published else KINDS)
    source = stored.checkpoint or run
    needed = ("checkpoints", *(BEGUN if recorded else ()))
    lacking = [name for name in needed if not (run / name).exists()]
    if lacking and not published:
        raise InputError(
            f"{run} is not a whole run: it has no {', '.join(lacking)}; restore them, or give another "
            "run, with --checkpoint for a certain one of its checkpoints"
        )
    if stored.flaw is not None:
        raise InputError(f"{run}: {stored.flaw}")
    runs, name = run.resolve().parents[1] if recorded else Path(RUNS), run.resolve().name
    output = output or runs / EXPORT / name
    with new_folder(output) as partial:
        try:
            kind, notes = _convert(stored, run, partial)
        except NoEquivalent as reason:
            if published:
                raise InputError(f"{run}: transformers has no such model: {reason}") from reason
            kind, notes = None, (f"transformers has no such model: {reason}.",)
            write_run(partial, source, stored.weights, stored.description, stored.tokenizer)
            for record in RECORDS:
                if (run / record).is_file():
                    shutil.copyfile(run / record, partial / record)
        if recorded:
            card = model_card(run, source, stored.description, kind, notes)
            (partial / "README.md").write_text(card, encoding="utf-8")
    return Export(output, source.name, kind, notes)


def _convert(stored: StoredModel, run: Path, folder: Path) -> tuple[str, tuple[str, ...]]:
    """Write a folder of `transformers`; return its `model_type` and notes on it, or raise NoEquivalent."""
    from transformers.utils import logging

    description, tokenizer = stored.description, stored.tokenizer
    length: int | None = description.get("max_length") or description.get("length")
    if length is None and (run / "config.yaml").exists():
        config = read_yaml((run / "config.yaml").read_text(encoding="utf-8"))
        length = config["training"]["sequence_length"]
    # Where the length is not known, 1 gives the shortest tables.
    model, limit, notes, own = equivalent(stored, length or 1)
    if own is not None:
        (folder / DESCRIPTION).write_text(json.dumps(own, indent=2) + "\n", encoding="utf-8")
    if isinstance(tokenizer, Bpe):
        tokenizer.save(folder)  # its tokenizer.json is replaced below
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    mode = (folder / "config.json").stat().st_mode
    for file in folder.glob("*.safetensors"):  # written only for its owner, whatever the umask is
        file.chmod(mode)
    if stored.kind == "mlm":
        made = "trained on" if stored.architecture is None else "made for"
        trained = "" if length is None else f" and was {made} {length}"
        notes += (f"It reads at most {limit} tokens{trained}.", SPELLING)
    elif stored.kind == "classifier":
        limit = description["max_length"]
        notes += (EMPTY_SECOND,) if len(description["texts"]) == 2 else ()
    elif stored.kind == "causal":
        notes += (f"It was trained on texts of {length} {description['reads']}.",)
        notes += (PROMPTS,) if description["reads"] == "tokens" else ()
    elif isinstance(tokenizer, Bpe) and tokenizer.words == "moses":
        notes += (MOSES.format(*description["languages"]),)
    save_tokenizer(tokenizer, folder, stored.kind, max_length=limit)
    return model.config.model_type, notes
