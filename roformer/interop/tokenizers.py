"""Tokenizers in the files of `transformers`: read beside a model, and written with the same ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from roformer.config.schema import Words
from roformer.data.bpe import SPECIAL_TOKENS, Bpe
from roformer.data.tokenizers import (
    CLASSES,
    CONTINUATION,
    PAD,
    SEP,
    UNK,
    ByteVocabulary,
    WordPiece,
    has_words,
)
from roformer.errors import InputError

TOKENIZERS: dict[str, Words] = {
    f"{name}{end}": words for words, name in CLASSES.items() for end in ("", "Fast")
}
"""Class of a tokenizer → how it cuts words."""
PADDING = 128
"""Embeddings may have fewer spare rows than this behind the vocabulary: rounded up for speed."""


def read_tokenizer(folder: Path, settings: Any) -> WordPiece | str:
    """Return the tokenizer of a folder, or why its texts cannot be read.

    Raises:
        InputError: a vocabulary that is damaged or of another model.
    """
    if not any((folder / name).is_file() for name in ("vocab.txt", "tokenizer.json")):
        return "it comes without a tokenizer (vocab.txt or tokenizer.json)"
    file = folder / "tokenizer_config.json"
    stated = read_json(file) if file.is_file() else {}
    named = stated.get("tokenizer_class") or getattr(settings, "tokenizer_class", None)
    if named is not None and named not in TOKENIZERS:
        return f"its tokenizer is {named}, and only BERT's and RoFormer's are read"
    read = WordPiece.load(folder)
    if named is None:
        named = CLASSES["jieba" if has_words(read.vocabulary) else "none"]
    words = TOKENIZERS[named]
    tokenizer = WordPiece(read.vocabulary, read.lowercase, words)
    if words == "none" and has_words(tokenizer.vocabulary):
        return (
            f"its tokenizer is {named}, which cuts Chinese into characters, but its vocabulary has "
            f"words: tokenizer_class {CLASSES['jieba']} in its tokenizer_config.json would use them"
        )
    if reason := _difference(folder, stated, tokenizer):
        return f"its tokenizer is {named} with {reason}, which is not built here"
    spare = settings.vocab_size - tokenizer.size
    if not 0 <= spare < PADDING:
        raise InputError(
            f"its tokenizer has {tokenizer.size:,} entries, its embeddings {settings.vocab_size:,}: they "
            "are not of one model"
        )
    return tokenizer


def _difference(folder: Path, stated: dict[str, Any], tokenizer: WordPiece) -> str | None:
    """Return the setting by which a tokenizer cuts texts otherwise than `WordPiece`."""
    whole = folder / "tokenizer.json"
    content = read_json(whole) if whole.is_file() else {}
    normalizer = content.get("normalizer") or {}
    accents = stated.get("strip_accents", normalizer.get("strip_accents"))
    if accents is not None and accents != tokenizer.lowercase:
        return f"strip_accents={accents}"
    apart = stated.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars", True))
    # RoFormer's tokenizer reads neither key.
    if not apart and tokenizer.words == "none":
        return "tokenize_chinese_chars=false"
    if not stated.get("do_basic_tokenize", True) and tokenizer.words == "none":
        return "do_basic_tokenize=false"
    added = [str(entry.get("content")) for entry in content.get("added_tokens") or []]
    if (file := folder / "added_tokens.json").is_file():
        added += read_json(file)
    known = set(tokenizer.vocabulary)
    new = [entry for entry in added if entry not in known]
    return f"added tokens ({', '.join(new[:3])})" if new else None


def read_json(file: Path) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        InputError: the file is not one.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file.name} is not JSON: {str(error).partition(chr(10))[0]}") from error
    if not isinstance(content, dict):
        raise InputError(f"{file.name} is not a JSON object")
    return content


def save_tokenizer(
    tokenizer: WordPiece | Bpe | ByteVocabulary, folder: Path, kind: str, *, max_length: int
) -> None:
    """Write a tokenizer as `transformers` does, for `AutoTokenizer` beside a model of a kind.

    The spelling of a special token inside a text is text, as it is here; but a masked-language model
    must be given its [MASK] in the text. A causal model's prompt begins where a document has ended.

    Args:
        tokenizer: to be written.
        folder: of the model.
        kind: of the model here.
        max_length: tokens that `truncation=True` leaves.
    """
    from transformers import BertTokenizer, RoFormerTokenizer

    if isinstance(tokenizer, ByteVocabulary):
        _save_fast(_bytes(), folder, max_length)
        return
    tokenizer.save(folder)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if isinstance(tokenizer, Bpe):
        (folder / "bpe.json").unlink()
        pad, end, unknown = SPECIAL_TOKENS
        library.post_processor = processors.TemplateProcessing(
            single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, tokenizer.end_id)]
        )
        _save_fast(library, folder, max_length, pad_token=pad, eos_token=end, unk_token=unknown)
    elif kind == "causal":
        # the library's leaves out the space before the first word, where a continuation needs it
        library.decoder = decoders.Sequence(
            [
                decoders.Replace(Regex(f"^(?!{CONTINUATION})"), " "),
                decoders.Replace(Regex(f"^{CONTINUATION}"), ""),
                decoders.Fuse(),
            ]
        )
        library.post_processor = processors.TemplateProcessing(
            single=f"{SEP} $A", special_tokens=[(SEP, tokenizer.sep_id)]
        )
        (folder / "vocab.txt").unlink()  # by which it would be taken for BERT's
        special = {"bos_token": SEP, "eos_token": SEP, "pad_token": PAD, "unk_token": UNK}
        _save_fast(library, folder, max_length, **special)
    else:
        own = RoFormerTokenizer if tokenizer.words == "jieba" else BertTokenizer
        as_text = kind == "classifier"
        written = own.from_pretrained(folder)
        _save(written, folder, split_special_tokens=as_text, model_max_length=max_length)


def _bytes() -> Tokenizer:
    """Return a tokenizer whose ids are the bytes of the text in UTF-8."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    ids = {letter: byte for byte, letter in bytes_to_unicode().items()}
    library = Tokenizer(models.BPE(vocab=ids, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    return library


def _save_fast(library: Tokenizer, folder: Path, max_length: int, **special: str) -> None:
    """Write a tokenizer of `tokenizers`: text is text, even spelt as a special token."""
    from transformers import PreTrainedTokenizerFast

    names = ["input_ids", "attention_mask"]
    written = PreTrainedTokenizerFast(
        tokenizer_object=library,
        model_max_length=max_length,
        model_input_names=names,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
        **special,
    )
    _save(written, folder, model_input_names=names)


def _save(tokenizer: Any, folder: Path, **changes: Any) -> None:
    """Write a tokenizer, with what `save_pretrained` writes in some versions and not in others."""
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    for machine in ("is_local", "local_files_only", "name_or_path"):
        content.pop(machine, None)
    special = folder / "special_tokens_map.json"
    for path, written in ((file, content | changes), (special, tokenizer.special_tokens_map)):
        path.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
