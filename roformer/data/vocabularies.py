"""Vocabularies of WordPiece: what vocab.txt and the files beside it say, and whether it is sound."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from roformer.config.schema import Words
from roformer.data.sources.files import readable
from roformer.errors import InputError
from roformer.json_files import read_object

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
CHINESE = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ebef]"
"""A Chinese character, as a regular expression."""
CLASSES: dict[Words, str] = {"none": "BertTokenizer", "jieba": "RoFormerTokenizer"}
"""What `transformers` calls a tokenizer that cuts words so."""


def read_vocabulary(path: Path) -> list[str]:
    """Read the entries of a vocab.txt or of a tokenizer folder, in the order of their ids.

    Raises:
        InputError: no vocabulary there, or one that is not a sound WordPiece vocabulary.
    """
    if not path.is_dir():
        file, entries = path, _read_lines(path)
    elif (file := path / "vocab.txt").is_file():
        entries = _read_lines(file)
    elif (file := path / "tokenizer.json").is_file():
        entries = _read_model(file)
    else:
        raise InputError(f"{path} has neither vocab.txt nor tokenizer.json: no tokenizer folder")
    lines: dict[str, int] = {}
    for line, entry in enumerate(entries, 1):
        if not entry:
            raise InputError(f"{file}:{line}: empty entry: remove the line")
        if entry in lines:
            raise InputError(f"{file}:{line}: {entry!r} is on line {lines[entry]} too: remove one")
        lines[entry] = line
    if missing := [token for token in SPECIAL_TOKENS if token not in lines]:
        raise InputError(
            f"{file}:{len(entries)}: the vocabulary ends without {', '.join(missing)}: add a line "
            "for each, or use another vocabulary"
        )
    return entries


def stated_case(folder: Path, otherwise: bool) -> bool:
    """Return the case rule that a tokenizer folder states, if it states one."""
    stated: object = otherwise
    if (file := folder / "tokenizer_config.json").is_file():
        stated = _read_json(file).get("do_lower_case", otherwise)
    elif (file := folder / "tokenizer.json").is_file():
        normalizer = _object(file, _read_json(file).get("normalizer") or {}, "normalizer")
        stated = normalizer.get("lowercase", otherwise)
    if not isinstance(stated, bool):
        raise InputError(f"{file} lower-cases {stated!r}: write true or false")
    return stated


def stated_words(folder: Path) -> Words | None:
    """Return how a tokenizer folder says that words are cut, if it does."""
    if not (file := folder / "tokenizer_config.json").is_file():
        return None
    named = str(_read_json(file).get("tokenizer_class"))
    return next((words for words, name in CLASSES.items() if named.startswith(name)), None)


def check_words(vocabulary: Sequence[str], words: Words, path: Path, named: str) -> None:
    """Check that words are cut as a vocabulary was made for: a mismatch costs only quality.

    Raises:
        InputError: its folder says otherwise, or it has words that would never be met, or none.
    """
    stated = stated_words(path) if path.is_dir() else None
    if stated is None:
        has_chinese = any(re.match(CHINESE, entry) for entry in vocabulary)
        stated = ("jieba" if has_words(vocabulary) else "none") if has_chinese else words
    if stated != words:
        what = "of Chinese words" if stated == "jieba" else "without Chinese words"
        raise InputError(f"{named} is a vocabulary {what}: set data.tokenizer.words={stated}")


def has_words(vocabulary: Iterable[str]) -> bool:
    """Tell whether a vocabulary was made for words of Chinese.

    One of characters has no entry of two of them: WordPiece would never reach it.
    """
    return any(re.match(CHINESE + "{2}", entry) for entry in vocabulary)


def share_of_capitals(vocabulary: list[str]) -> float:
    """Return the share of entries with a capital letter, the special tokens left out."""
    words = [entry for entry in vocabulary if not entry.startswith("[")]
    return sum(re.search("[A-Z]", word) is not None for word in words) / max(1, len(words))


def _read_lines(file: Path) -> list[str]:
    entries = []
    with readable(file):
        content = file.read_bytes()
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        try:
            entries.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise InputError(f"{file}:{number}: not UTF-8: is this a vocab.txt?") from error
    return entries


def _read_model(file: Path) -> list[str]:
    model = _object(file, _read_json(file).get("model"), "model")
    kind, prefix = model.get("type"), model.get("continuing_subword_prefix")
    if kind != "WordPiece" or prefix != CONTINUATION:
        raise InputError(f"{file} is a {kind} tokenizer: only BERT's WordPiece is read")
    ids = _object(file, model.get("vocab"), "model.vocab")
    entries = {index: entry for entry, index in ids.items() if type(index) is int}
    if sorted(entries) != [*range(len(ids))]:
        raise InputError(f"{file} does not number its entries 0, 1, …: use another vocabulary")
    return [entries[index] for index in range(len(ids))]


def _read_json(file: Path) -> dict[str, Any]:
    with readable(file):
        try:
            return read_object(file)
        except ValueError as error:
            raise InputError(f"{file} is not JSON that can be read: {error}") from error


def _object(file: Path, content: object, key: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise InputError(f"{file} has no JSON object under {key!r}: use another tokenizer")
    return content
