"""Tokenizers in the files of `transformers`: read with a model, and written with the same ids."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from roformer.data import bpe
from roformer.data.bpe import Bpe
from roformer.data.tokenizers import (
    CLASSES,
    CONTINUATION,
    PAD,
    SEP,
    UNK,
    ByteVocabulary,
    OtherTokenizer,
    WordPiece,
    bert_rules,
    has_words,
    read_wordpiece,
)
from roformer.errors import InputError

PADDING = 128
"""Embeddings may have fewer spare rows than this behind the vocabulary: rounded up for speed."""


def read_tokenizer(folder: Path, settings: Any) -> WordPiece | str:
    """Return the tokenizer of a folder, or why its texts cannot be read."""
    try:
        tokenizer = read_wordpiece(folder, getattr(settings, "tokenizer_class", None), trained=True)
    except OtherTokenizer as error:
        return str(error)
    rules = bert_rules(tokenizer.library) or {}
    characters = tokenizer.words == "none" and rules.get("tokenize_chinese_chars")
    if characters and has_words(tokenizer.vocabulary):
        return (
            "its tokenizer cuts Chinese into characters, but its vocabulary has words: "
            f"tokenizer_class {CLASSES['jieba']} in its tokenizer_config.json would use them"
        )
    if not 0 <= settings.vocab_size - tokenizer.size < PADDING:
        raise InputError(
            f"its tokenizer has {tokenizer.size:,} entries, its embeddings {settings.vocab_size:,}: they "
            "are not of one model"
        )
    return tokenizer


def save_tokenizer(
    tokenizer: WordPiece | Bpe | ByteVocabulary, folder: Path, kind: str, *, max_length: int
) -> None:
    """Write a tokenizer for `AutoTokenizer` into the folder of a model of a kind.

    The spelling of a special token inside a text is text, as it is here; but a masked-language model
    must be given its [MASK] in the text. A causal model's prompt begins where a document has ended.
    `max_length` is the tokens that `truncation=True` leaves.
    """
    from transformers import PreTrainedTokenizerFast

    settings = {"model_max_length": max_length, "split_special_tokens": kind != "mlm"}
    if isinstance(tokenizer, WordPiece) and kind != "causal":
        tokenizer.save(folder)
        file = folder / "tokenizer_config.json"
        content = json.loads(file.read_text(encoding="utf-8")) | settings
        file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        return
    library, special = _library(tokenizer)
    PreTrainedTokenizerFast(
        tokenizer_object=library,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        # A batch of prompts continues where they end.
        padding_side="left" if kind == "causal" else "right",
        **settings,
        **special,
    ).save_pretrained(folder)


def _library(tokenizer: WordPiece | Bpe | ByteVocabulary) -> tuple[Tokenizer, dict[str, str]]:
    """Return a tokenizer of `tokenizers` and the special tokens of `transformers`."""
    if isinstance(tokenizer, ByteVocabulary):
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        ids = {letter: byte for byte, letter in bytes_to_unicode().items()}
        library = Tokenizer(models.BPE(vocab=ids, merges=[]))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        library.decoder = decoders.ByteLevel()
        return library, {}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        library = Tokenizer.from_file(f"{folder}/tokenizer.json")
    if isinstance(tokenizer, Bpe):
        pad, end, unknown = bpe.SPECIAL_TOKENS
        library.post_processor = processors.TemplateProcessing(
            single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, tokenizer.end_id)]
        )
        return library, {"pad_token": pad, "eos_token": end, "unk_token": unknown}
    # The library's decoder omits the space before the first word, which a continuation needs.
    begins, continues = Regex(f"^(?!{CONTINUATION})"), Regex(f"^{CONTINUATION}")
    spaced = [decoders.Replace(begins, " "), decoders.Replace(continues, "")]
    library.decoder = decoders.Sequence([*spaced, decoders.Fuse()])
    library.post_processor = processors.TemplateProcessing(
        single=f"{SEP} $A", special_tokens=[(SEP, tokenizer.sep_id)]
    )
    return library, {"bos_token": SEP, "eos_token": SEP, "pad_token": PAD, "unk_token": UNK}
