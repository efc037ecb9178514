"""WordPiece: trained on a corpus, read from the files of `transformers` or `tokenizers`, and saved.

A tokenizer that is trained here is BERT's but for its vocabulary (Devlin et al. 2019). One that is read
keeps the rules that its files state.

Chinese is cut into words first with `words=jieba`, as WoBERT and RoFormer read it:

    text → BERT's normalizer, Chinese characters left together
         → jieba's words: only its dictionary, its hidden Markov model off
         → a word of the vocabulary is one token; any other text is cut as BERT does it: Chinese
           into characters, the rest into WordPieces

`RoFormerTokenizer` of `transformers` and RoFormer_pytorch give the same ids.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from roformer.config.schema import TokenizerConfig, Words
from roformer.data.files import first_line, readable
from roformer.data.hub import describe_error
from roformer.data.work import imap_ordered
from roformer.errors import InputError
from roformer.json_files import read_object

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROLES = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
CONTINUATION = "##"
CHINESE = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ebef]"
"""A Chinese character, as a regular expression."""
CLASSES: dict[Words, str] = {"none": "BertTokenizer", "jieba": "RoFormerTokenizer"}
"""The class in `transformers` of a tokenizer with BERT's rules, by how it cuts words."""
ROFORMER = ("RoFormerTokenizer", "RoFormerTokenizerFast")
FAMILY = ROFORMER + tuple(
    f"{name}Tokenizer{end}"
    for name in ("Bert", "ConvBert", "DistilBert", "Electra", "MobileBert", "SqueezeBert")
    for end in ("", "Fast")
)
"""Classes of `transformers` with BERT's rules."""
RULES = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
"""Settings of these classes."""
AS_FILED = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes that follow tokenizer.json."""
FILES = (
    "tokenizer.json",
    "vocab.txt",
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
)
"""Files of a tokenizer; of the first two one is enough."""
READABLE = (
    "only WordPiece is read, from a vocab.txt, a tokenizer.json, or a folder or Hub id with one"
)
MAX_ALPHABET, MAX_CHINESE_ALPHABET = 1000, 8000
"""Characters in a trained vocabulary at most, the most frequent ones; the second limit is for mostly Chinese
text (bert-base-chinese has 7,322)."""
MANY_UNKNOWN, MOST_UNKNOWN = 0.02, 0.5
"""Shares of [UNK] in a text beyond which the vocabulary is likely, and surely, made for other text."""
REMEMBERED = 2**19
"""Words whose tokens are cached; jieba's dictionary has fewer."""
SPACED = normalizers.BertNormalizer(
    clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
)
"""Normalizer that puts spaces around Chinese characters."""


class OtherTokenizer(InputError):
    """A sound tokenizer that is not read: not WordPiece, or with tokens that no file numbers."""


class WordPiece:
    """A WordPiece vocabulary and the rules by which text becomes its ids.

    The spelling of a special token inside a text is text: `[MASK]` in a document gives the pieces
    of "[", "mask" and "]", never `mask_id`. `library` has a WordPiece model; it is kept and gets BERT's
    special tokens. With `words=jieba` Chinese words of the vocabulary are tokens.
    """

    def __init__(self, library: Tokenizer, words: Words = "none") -> None:
        self.library, self.words, self._model = library, words, library.model
        self.vocabulary = tuple(vocabulary_of(library))
        self._ids = {entry: index for index, entry in enumerate(self.vocabulary)}
        self.size = len(self.vocabulary)
        self.special_ids = tuple(self._ids[token] for token in SPECIAL_TOKENS)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids
        self._word_ids = lru_cache(REMEMBERED)(self._encode_word)
        library.decoder = decoders.WordPiece(prefix=CONTINUATION)
        library.post_processor = processors.BertProcessing((SEP, self.sep_id), (CLS, self.cls_id))
        library.add_special_tokens(list(SPECIAL_TOKENS))
        library.encode_special_tokens = True
        self.lowercase = bool(library.normalizer and library.normalizer.normalize_str("A") != "A")

    @classmethod
    def bert(cls, vocabulary: Sequence[str], lowercase: bool, words: Words = "none") -> WordPiece:
        """Return BERT's tokenizer with the entries of a vocabulary, in the order of their ids."""
        ids = {entry: index for index, entry in enumerate(vocabulary)}
        return cls(_bert(Tokenizer(_model(ids)), lowercase), words)

    def __reduce__(self) -> tuple[type[WordPiece], tuple[Tokenizer, Words]]:
        # Tokenizer does not pickle encode_special_tokens.
        return WordPiece, (self.library, self.words)

    @cached_property
    def continuation(self) -> NDArray[np.bool_]:
        """Mask of the ids that continue the word of the piece before, (size,); Chinese ids do not."""
        return np.array([entry.startswith(CONTINUATION) for entry in self.vocabulary])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of case rule, ordered vocabulary, words, and rules that are not BERT's."""
        rules: list[Any] = [self.lowercase, self.vocabulary]
        rules += [self.words] if self.words != "none" else []
        usual = self.lowercase, self.lowercase, True
        if bert_rules(self.library) != dict(zip(RULES, usual, strict=True)):
            parts = (self.library.normalizer, self.library.pre_tokenizer)
            rules += [part and json.loads(part.__getstate__()) for part in parts]
            rules.append(self._model.max_input_chars_per_word)
            rules += [token.__getstate__() for token in _added(self.library)]
        return hashlib.sha256(json.dumps(rules, ensure_ascii=True).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without [CLS] and [SEP]."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each text, on all threads; see `encode`."""
        if self.words == "jieba":
            normalizer = self.library.normalizer
            cut = cut_words(texts, normalizer.lowercase, normalizer.strip_accents)
            return [[index for word in words for index in self._word_ids(word)] for words in cut]
        with all_threads():
            # "fast": without character offsets, which are not needed and take half of the time.
            encodings = self.library.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _encode_word(self, word: str) -> list[int]:
        parts = [word] if word in self._ids else SPACED.normalize_str(word).split()
        return [token.id for part in parts for token in self._model.tokenize(part)]

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into readable text, special tokens spelt out; spacing is not recovered."""
        return self.library.decode(list(ids), skip_special_tokens=False)

    def save(self, folder: str | Path) -> None:
        """Write the files of `transformers`; `AutoTokenizer` reads them with the same rules."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = {"tokenizer.json": self.library.to_str(pretty=True)}
        settings: dict[str, Any] = {"tokenizer_class": AS_FILED[0]}
        if rules := bert_rules(self.library):
            settings = {"tokenizer_class": CLASSES[self.words], **rules}
            if rules["strip_accents"] == rules["do_lower_case"]:
                settings["strip_accents"] = None
            files["vocab.txt"] = "".join(f"{entry}\n" for entry in self.vocabulary)
        files["tokenizer_config.json"] = json.dumps(settings | ROLES, indent=2) + "\n"
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")

    def to_transformers(self) -> Any:
        """Return the tokenizer of `transformers` that gives the same ids with `split_special_tokens=True`."""
        from transformers import AutoTokenizer

        with tempfile.TemporaryDirectory() as folder:
            self.save(folder)
            return AutoTokenizer.from_pretrained(folder)

    @classmethod
    def load(cls, folder: str | Path) -> WordPiece:
        """Read what `save` or `transformers` wrote; see `read_wordpiece`."""
        return read_wordpiece(Path(folder))


class ByteVocabulary:
    """The vocabulary of bytes, in place of a tokenizer."""

    size = 256
    fingerprint = "bytes"
    FILE = "bytes.json"

    def save(self, folder: Path) -> None:
        """Write the file by which a run's folder says that it reads bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {"vocabulary": self.fingerprint, "size": self.size}
        (folder / self.FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")


# --- training ------------------------------------------------------------------------------------


def train_tokenizer(documents: Iterable[str], config: TokenizerConfig) -> WordPiece:
    """Learn the vocabulary that a config asks for; `documents` are read more than once."""
    train = train_wordpiece if config.words == "none" else train_words
    return train(documents, config.vocab_size, config.lowercase)


def train_wordpiece(
    documents: Iterable[str], vocab_size: int, lowercase: bool, without_chinese: bool = False
) -> WordPiece:
    """Learn a vocabulary of at most `vocab_size` entries, a function of the words and their counts.

    The library's trainer numbers the continuation pieces (`##a`) and cuts the alphabet in the random order
    of a hash table, and these numbers break ties between merges. So the alphabet is counted and cut here,
    and its continuations are given in order, as if they were special tokens.
    """
    tokenizer = _bert(Tokenizer(_model({})), lowercase)
    if without_chinese:
        blanked = normalizers.Replace(Regex(CHINESE), " ")
        tokenizer.normalizer = normalizers.Sequence([blanked, tokenizer.normalizer])
    characters = _characters(documents, tokenizer.normalizer)
    chinese = {character for character in characters if re.match(CHINESE, character)}
    mostly_chinese = 2 * sum(characters[c] for c in chinese) > characters.total()
    # Each character may need two entries; never more of them than the vocabulary has.
    limit = min(
        MAX_CHINESE_ALPHABET if mostly_chinese else MAX_ALPHABET,
        (vocab_size - len(SPECIAL_TOKENS)) // 2,
    )
    alphabet = sorted(_most_frequent(characters, limit))
    if not alphabet:
        raise InputError("the training documents hold no text to train a tokenizer on")
    # Each punctuation mark and Chinese character is a word and never continues one. (Among other
    # text some Chinese ones have a continuation, never used: vocabularies stay as they were.)
    apart = chinese if mostly_chinese else set[str]()
    inside = [
        c
        for c in alphabet
        if c not in apart and len(tokenizer.pre_tokenizer.pre_tokenize_str(f"a{c}a")) == 1
    ]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS, *(CONTINUATION + character for character in inside)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    with all_threads():
        tokenizer.train_from_iterator(documents, trainer=trainer)
    return WordPiece.bert(vocabulary_of(tokenizer), lowercase)


def _characters(documents: Iterable[str], normalizer: Any) -> Counter[str]:
    """Count the characters after normalization, without spaces."""
    raw: Counter[str] = Counter()
    for text in documents:
        raw.update(text)
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for normal in normalizer.normalize_str(character):
            if not normal.isspace():
                counts[normal] += count
    return counts


def train_words(documents: Iterable[str], vocab_size: int, lowercase: bool) -> WordPiece:
    """Learn a vocabulary of Chinese words, as WoBERT has; a function of the words and their counts.

    [PAD] … [MASK]       the five special tokens
    WordPieces           of all that is not Chinese: at most a quarter of the entries
    Chinese characters   that occur twice, the most frequent first: at most half of the rest
    Chinese words        of two characters or more, as jieba cuts them, that occur twice, the
                         most frequent first: all that is left
    """
    counts: Counter[str] = Counter()
    for cut in cut_words(documents, lowercase):
        counts.update(cut)
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        characters.update({character: count * word.count(character) for character in set(word)})
    chinese = Counter({c: count for c, count in characters.items() if re.match(CHINESE, c)})
    if not chinese:
        raise InputError(
            "the training documents hold no Chinese to find words in: set data.tokenizer.words=none"
        )
    entries = list(SPECIAL_TOKENS)
    if any(not c.isspace() for c in characters.keys() - chinese.keys()):
        size = max(64, vocab_size // 4)
        entries = list(train_wordpiece(documents, size, lowercase, True).vocabulary)
    words = Counter({w: n for w, n in counts.items() if re.fullmatch(f"{CHINESE}{{2,}}", w)})
    entries += _most_frequent(chinese, (vocab_size - len(entries)) // 2, at_least=2)
    entries += _most_frequent(words, vocab_size - len(entries), at_least=2)
    return WordPiece.bert(entries, lowercase, "jieba")


def _most_frequent(counts: Counter[str], limit: int, at_least: int = 1) -> list[str]:
    """Return at most `limit` entries, equally frequent ones in the order of their code points."""
    frequent = [entry for entry, count in counts.items() if count >= at_least]
    return sorted(frequent, key=lambda entry: (-counts[entry], entry))[: max(0, limit)]


# --- reading -------------------------------------------------------------------------------------


def load_wordpiece(config: TokenizerConfig) -> WordPiece:
    """Read the tokenizer that `config.source` names: a file, a folder or a Hub id."""
    path, named = Path(config.source), f"data.tokenizer.source={config.source}"
    if not path.exists():
        if not is_hub_id(config.source):
            raise InputError(
                f"{named} does not exist: give a vocab.txt, a folder, a Hub id or train"
            )
        path = _download(config)
    tokenizer = read_wordpiece(path, lowercase=config.lowercase, words=config.words)
    for key in ("lowercase", "words"):
        if (rule_of_files := getattr(tokenizer, key)) != getattr(config, key):
            rule = f"{key}={str(rule_of_files).lower()}"
            raise InputError(f"{named} was made with {rule}: set data.tokenizer.{rule}")
    return tokenizer


def is_hub_id(source: str) -> bool:
    """Return whether a source that is no local path can be a Hub id, `owner/name`."""
    file = source.endswith((".txt", ".json", ".model"))
    return re.fullmatch(r"\w[\w.-]*/[\w.-]+", source) is not None and not file


def has_words(vocabulary: Iterable[str]) -> bool:
    """Return whether a vocabulary has Chinese words: an entry begins with two characters."""
    return any(re.match(CHINESE + "{2}", entry) for entry in vocabulary)


def _download(config: TokenizerConfig) -> Path:
    try:
        from huggingface_hub import snapshot_download

        revision = config.revision
        return Path(snapshot_download(config.source, revision=revision, allow_patterns=[*FILES]))
    except Exception as error:  # the Hub's errors have no common base class
        raise InputError(
            f"the tokenizer of {config.source} cannot be downloaded from the Hugging Face Hub: "
            f"{describe_error(error)}; without a network set data.tokenizer.source to a local "
            "vocab.txt or to train"
        ) from error


def read_wordpiece(
    path: Path,
    named: str | None = None,
    *,
    lowercase: bool = True,
    words: Words = "none",
    trained: bool = False,
) -> WordPiece:
    """Read a vocab.txt, a tokenizer.json, or a folder with one of them, with the rules that it states.

    A class with BERT's rules has the rules of tokenizer_config.json, as in `transformers`; any other
    tokenizer.json is kept as it is. A stated rule that cannot be followed is an OtherTokenizer error.

    Args:
        named: class of the tokenizer, if tokenizer_config.json names no class.
        lowercase: rule of a vocab.txt whose folder states no rule and whose entries have no capitals.
        words: rule of a vocab.txt whose class is not named and whose entries are not Chinese.
        trained: whether it belongs to trained weights, which know only the special tokens that it adds.
    """
    files = {name: path / name for name in FILES if (path / name).is_file()}
    if path.is_file():
        files = {"tokenizer.json" if path.suffix == ".json" else "vocab.txt": path}
    whole, lines, *settings = (files.get(name) for name in FILES)
    stated, added, special = (
        dict[str, Any]() if file is None else read_json(file) for file in settings
    )
    stated = special | stated
    named = stated.get("tokenizer_class") or named
    if named not in (None, *FAMILY, *AS_FILED):
        raise OtherTokenizer(f"{path}: its tokenizer is {named}, not one of BERT's: {READABLE}")
    if whole is not None:
        library = _read_library(whole)
        if lines is not None and _read_lines(lines) != library.get_vocab(with_added_tokens=False):
            raise InputError(f"{path}: vocab.txt and tokenizer.json differ: remove one of them")
    elif lines is not None and named not in AS_FILED:
        library = Tokenizer(_model(_read_lines(lines)))
    else:
        raise OtherTokenizer(f"{path} has no tokenizer.json and no vocab.txt: {READABLE}")
    entries, file = vocabulary_of(library), whole or lines or path
    if missing := [token for token in SPECIAL_TOKENS if token not in entries]:
        raise InputError(
            f"{file}: the vocabulary has no {', '.join(missing)}: add these entries, or use "
            f"another vocabulary; {READABLE}"
        )
    for role, token in stated.items():
        allowed = {ROLES[role]} if role in ROLES else {*SPECIAL_TOKENS}
        if other := _contents([token] if role.endswith("_token") else []) - allowed:
            raise OtherTokenizer(f"{path} has {role}={other.pop()}, which is not supported")
    if stated.get("do_basic_tokenize") is False:
        raise OtherTokenizer(f"{path} has do_basic_tokenize=false, which is not supported")
    keys = ("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens")
    decoder, *others = (_contents(stated.get(key)) for key in keys)
    marked = _contents(stated.get(keys[0]), special=True).union(SPECIAL_TOKENS, *others)
    problems = {
        "lacks": {*added}.union(decoder, *others).difference(entries),
        # In a text a special token is text, but any other added token cuts it.
        "does not add": {*added, *decoder} - marked - {token.content for token in _added(library)},
    }
    for problem, tokens in problems.items():
        if tokens:
            names = ", ".join(sorted(tokens)[:3])
            raise OtherTokenizer(f"{path} has added tokens ({names}) that {file.name} {problem}")
    if trained and named in AS_FILED and not _adds_as_bert(library):
        raise OtherTokenizer(
            f"{path}: the post_processor of tokenizer.json does not make [CLS] a [SEP] b [SEP], which is "
            "not supported"
        )

    if named is not None:
        words = "jieba" if named in ROFORMER else "none"
    elif whole is not None:
        words = "none"
    elif any(re.match(CHINESE, entry) for entry in entries):
        words = "jieba" if has_words(entries) else "none"
    stateable = RULES if words == "none" else RULES[:2]
    rules = {key: stated[key] for key in stateable if stated.get(key) is not None}
    if not all(isinstance(value, bool) for value in rules.values()):
        raise InputError(f"{path}: tokenizer_config.json has {rules}: write true or false")
    if named in FAMILY or (named is None and (whole is None or rules)):
        usual = whole is not None or (lowercase and not _has_capitals(entries))
        _bert(library, **{"do_lower_case": usual, **rules})
    if words == "jieba" and bert_rules(library) is None:
        raise OtherTokenizer(
            f"{path} cuts Chinese into words, and tokenizer.json has added tokens or another "
            "max_input_chars_per_word: together they are not supported"
        )
    return WordPiece(library, words)


def _read_library(file: Path) -> Tokenizer:
    try:
        library = Tokenizer.from_file(str(file))
    except Exception as error:  # the library has no other type
        raise InputError(f"{file} is no tokenizer ({first_line(error)}): {READABLE}") from error
    if not isinstance(library.model, models.WordPiece):
        kind = type(library.model).__name__
        raise OtherTokenizer(f"{file}: its tokenizer is {kind}: {READABLE}")
    for key, usual in (("continuing_subword_prefix", CONTINUATION), ("unk_token", UNK)):
        if (value := getattr(library.model, key)) != usual:
            raise OtherTokenizer(f"{file} has {key}={value}, which is not supported")
    ids = library.get_vocab().values()
    if sorted(ids) != [*range(len(ids))]:
        raise InputError(f"{file}: its entries are not numbered 0, 1, …: use another vocabulary")
    library.no_truncation()
    library.no_padding()
    return library


def _contents(tokens: Any, *, special: bool = False) -> set[str]:
    """Return the texts of tokens that a file lists, with or without flags; or those flagged special."""
    listed = tokens.values() if isinstance(tokens, dict) else tokens
    each = listed if isinstance(tokens, (dict, list)) else ()
    flagged = [token if isinstance(token, dict) else {"content": token} for token in each]
    texts = (token.get("content") for token in flagged if token.get("special") or not special)
    return {text for text in texts if isinstance(text, str)}


def _added(library: Tokenizer) -> list[AddedToken]:
    """Return the tokens that a tokenizer adds to BERT's special tokens, in the order of their ids."""
    tokens = library.get_added_tokens_decoder().values()
    return [token for token in tokens if token.content not in SPECIAL_TOKENS]


def _adds_as_bert(library: Tokenizer) -> bool:
    """Return whether a tokenizer adds the special tokens of BERT to a text and to a pair."""
    a, b = (library.encode(text, add_special_tokens=False).ids for text in "ab")
    cls, sep = map(library.token_to_id, (CLS, SEP))
    ids, types = [cls, *a, sep, *b, sep], [0] * (len(a) + 2) + [1] * (len(b) + 1)
    text, pair = library.encode("a"), library.encode("a", "b")
    return (pair.ids, pair.type_ids, text.ids) == (ids, types, ids[: len(a) + 2])


def _read_lines(file: Path) -> dict[str, int]:
    """Return the entries of a vocab.txt and their ids."""
    with readable(file):
        content = file.read_bytes()
    try:
        lines = content.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{file}:{number}: not UTF-8: {READABLE}") from error
    entries: dict[str, int] = {}
    for number, line in enumerate((line.removesuffix("\r") for line in lines), 1):
        if not line or line in entries:
            wrong = f"{line!r} is on line {entries[line] + 1} too" if line else "empty entry"
            raise InputError(f"{file}:{number}: {wrong}: remove the line")
        entries[line] = len(entries)
    return entries


def vocabulary_of(library: Tokenizer) -> list[str]:
    """Return the entries of a tokenizer, added ones too, in the order of their ids."""
    ids = library.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def _has_capitals(entries: Sequence[str]) -> bool:
    """Return whether more than 1 % of the entries are never met in lower-cased text."""
    plain = [entry for entry in entries if not entry.startswith("[")]
    return sum(entry != entry.lower() for entry in plain) > 0.01 * len(plain)


def read_json(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a tokenizer; raise InputError where there is none."""
    with readable(file):
        try:
            return read_object(file)
        except ValueError as error:
            raise InputError(f"{file} is not JSON that can be read: {error}") from error


# --- the libraries beneath -----------------------------------------------------------------------


def segmenter() -> str:
    """Return name and version of what cuts words: another dictionary gives other words."""
    return f"rjieba {metadata.version('rjieba')}"


def cut_words(
    texts: Iterable[str], lowercase: bool, strip_accents: bool | None = None
) -> Iterator[list[str]]:
    """Yield jieba's words of each text, on all threads; joined they are the normalized text."""
    from rjieba import cut  # reads its dictionary, which takes a fifth of a second

    # jieba must see Chinese characters side by side: no spaces around them here.
    normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=False
    )

    def words_of(text: str) -> list[str]:
        words: list[str] = cut(normalizer.normalize_str(text), False)
        return words

    with ThreadPoolExecutor(library_threads()) as pool:  # jieba computes without Python's lock
        yield from imap_ordered(pool, words_of, texts, ahead=64)


def _model(ids: dict[str, int]) -> models.WordPiece:
    return models.WordPiece(ids, unk_token=UNK)


def _bert(
    library: Tokenizer,
    do_lower_case: bool,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
) -> Tokenizer:
    """Give a tokenizer the rules of BERT and return it."""
    library.normalizer = normalizers.BertNormalizer(
        lowercase=do_lower_case,
        strip_accents=strip_accents,
        handle_chinese_chars=tokenize_chinese_chars,
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def bert_rules(library: Tokenizer) -> dict[str, bool] | None:
    """Return the `RULES` of a tokenizer that is BERT's; None if it has other rules."""
    normalizer = library.normalizer
    if (
        _added(library)
        or not isinstance(normalizer, normalizers.BertNormalizer)
        or not isinstance(library.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        or (normalizer.clean_text, library.model.max_input_chars_per_word) != (True, 100)
    ):
        return None
    lowercase, accents = normalizer.lowercase, normalizer.strip_accents
    accents = lowercase if accents is None else accents
    return dict(zip(RULES, (lowercase, accents, normalizer.handle_chinese_chars), strict=True))


_PARALLELISM = os.environ.get("TOKENIZERS_PARALLELISM", "true")


@contextmanager
def all_threads() -> Iterator[None]:
    """Use the library's threads for one call, and leave them switched off after it.

    Otherwise each process forked later (the workers of a DataLoader) prints a warning about them.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = _PARALLELISM
    try:
        yield
    finally:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"


def check_unknown(share: float, source: str, name: str = "text") -> None:
    """Warn where more than `MANY_UNKNOWN` of the tokens are [UNK]; raise InputError beyond `MOST_UNKNOWN`."""
    remedy = {
        "train": "raise data.tokenizer.vocab_size, or give more text",
        "init_from": "start from weights that were trained on such text",
    }.get(source, "give another data.tokenizer.source, or train, which learns one from the text")
    problem = (
        f"{name}: {share:.1%} of the tokens are [UNK], because the vocabulary does not have them"
    )
    if share > MOST_UNKNOWN:
        raise InputError(f"{problem}: {remedy}")
    if share > MANY_UNKNOWN:
        print(f"warning: {problem}: {remedy}", file=sys.stderr)


def tokenizer_facts(tokenizer: WordPiece) -> dict[str, Any]:
    """Return the entries of a manifest about a tokenizer."""
    return {name: getattr(tokenizer, name) for name in ("lowercase", "size", "fingerprint")}


def library_threads() -> int:
    """Return the number of threads that `tokenizers` uses."""
    return int(os.environ.get("RAYON_NUM_THREADS") or 0) or os.cpu_count() or 1


def use_threads(workers: int | None) -> None:
    """Limit the threads of `tokenizers`, which asks once, when the process first uses them."""
    if workers:
        os.environ.setdefault("RAYON_NUM_THREADS", str(workers))
