"""Our tokenizers as `AutoTokenizer` opens them beside an exported model, with the same ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from roformer.data.bpe import SPECIAL_TOKENS, Bpe
from roformer.data.tokenizers import WordPiece
from roformer.data.vocabularies import CONTINUATION, PAD, SEP, UNK


def save_wordpiece(
    tokenizer: WordPiece, folder: Path, *, max_length: int, special_as_text: bool
) -> None:
    """Write a WordPiece tokenizer as `transformers` does, for `AutoTokenizer` beside any model.

    Args:
        tokenizer: ours.
        folder: of the model.
        max_length: what `truncation=True` cuts to.
        special_as_text: whether the spelling of a special token inside a text is text, as in ours;
            a masked-language model must be given its [MASK] in the text.
    """
    from transformers import BertTokenizer, RoFormerTokenizer

    tokenizer.save(folder)
    kind = RoFormerTokenizer if tokenizer.words == "jieba" else BertTokenizer
    theirs = kind.from_pretrained(folder)
    theirs.save_pretrained(folder)
    _amend(folder, split_special_tokens=special_as_text, model_max_length=max_length)
    _write(folder / "special_tokens_map.json", theirs.special_tokens_map)


def save_bpe(source: Path, tokenizer: Bpe, folder: Path, *, max_length: int) -> None:
    """Write a byte-pair encoding as `transformers` does; it ends each text with `</s>`.

    Args:
        source: what `Bpe.save` wrote.
        tokenizer: the same, read.
        folder: of the model.
        max_length: what `truncation=True` cuts to, the end included.
    """
    pad, end, unknown = SPECIAL_TOKENS
    library = Tokenizer.from_file(str(source / "tokenizer.json"))
    library.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, tokenizer.end_id)]
    )
    _save(library, folder, max_length, pad_token=pad, eos_token=end, unk_token=unknown)


def save_prompts(tokenizer: WordPiece, folder: Path, *, max_length: int) -> None:
    """Write a WordPiece tokenizer for a causal model: a text begins where a document has ended.

    Args:
        tokenizer: ours, of characters.
        folder: of the model.
        max_length: what `truncation=True` cuts to.
    """
    tokenizer.save(folder)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    # theirs leaves out the space before the first word, where a continuation needs it
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
    _save(library, folder, max_length, bos_token=SEP, eos_token=SEP, pad_token=PAD, unk_token=UNK)


def save_bytes(folder: Path, *, max_length: int) -> None:
    """Write a tokenizer whose ids are the bytes of the text in UTF-8.

    Args:
        folder: of the model.
        max_length: what `truncation=True` cuts to.
    """
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    ids = {letter: byte for byte, letter in bytes_to_unicode().items()}
    library = Tokenizer(models.BPE(vocab=ids, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    _save(library, folder, max_length)


def _save(library: Tokenizer, folder: Path, max_length: int, **special: str) -> None:
    """Write a tokenizer of `tokenizers` for `AutoTokenizer`: text is text, even spelt as a special token."""
    from transformers import PreTrainedTokenizerFast

    names = ["input_ids", "attention_mask"]
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=library,
        model_max_length=max_length,
        model_input_names=names,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
        **special,
    )
    theirs.save_pretrained(folder)
    _amend(folder, model_input_names=names)
    _write(folder / "special_tokens_map.json", theirs.special_tokens_map)


def _amend(folder: Path, **changes: Any) -> None:
    """Settle what `save_pretrained` writes of tokenizer_config.json in some versions and not others."""
    file = folder / "tokenizer_config.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    for machine in ("is_local", "local_files_only", "name_or_path"):
        content.pop(machine, None)
    _write(file, content | changes)


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
