"""Byte-pair encoding, one for both languages of a parallel text (Sennrich et al. 2016, section 3).

    text  →  words   Moses tokens (sacremoses, `-a`, nothing escaped), or the text as it is
    words →  pieces  merges of bytes that never cross a word; every byte is in the vocabulary

A word includes the space before it, as in GPT-2, so pieces join again without ambiguity. Merges start from
bytes, so a character that the training text lacks becomes its bytes and is not unknown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from roformer.config.wmt import BpeConfig
from roformer.data.tokenizers import all_threads, read_json
from roformer.data.work import progress_bar
from roformer.errors import InputError

PAD, END, UNKNOWN = SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>")
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
"""The 256 bytes, each as the printable character that GPT-2 writes for it."""

RULES = ("words", "source_language", "target_language")
"""Settings of a tokenizer, in the order of its arguments."""
KNOWN_WORDS = 2**18
"""Moses tokens whose ids are kept; they take about 0.1 GB."""
Merge = tuple[str, str]


class Bpe:
    """A byte-pair encoding and how text becomes its ids; pickles as its merges.

    The spelling of a special token inside a text is text: `</s>` in a sentence never gives `end_id`.
    The merges `learnt`, in their order, decide the vocabulary. `words` is `moses` or `bytes`, see
    `roformer.config.wmt.BpeConfig`.
    """

    pad_id, end_id, unknown_id = range(3)

    def __init__(
        self, learnt: Sequence[Merge], words: str, source_language: str, target_language: str
    ) -> None:
        self.words = words
        self.source_language, self.target_language = source_language, target_language
        self._learnt = [(left, right) for left, right in learnt]
        rules = (words, source_language, target_language, self._learnt)
        self.fingerprint = hashlib.sha256(json.dumps(rules).encode()).hexdigest()
        """SHA-256 of merges, words and languages: equal means equal ids."""
        # Neither kind of word can hold a whole <pad>: both cut at < and >.
        merged = (left + right for left, right in self._learnt)
        entries = dict.fromkeys((*SPECIAL_TOKENS, *ALPHABET, *merged))
        self.size, self.merges = len(entries), len(self._learnt)
        ids = {entry: index for index, entry in enumerate(entries)}
        self._tokenizer = Tokenizer(models.BPE(ids, self._learnt, unk_token=UNKNOWN))
        self._tokenizer.pre_tokenizer = _pre_tokenizer(words)
        self._tokenizer.decoder = decoders.ByteLevel()
        self._known: dict[str, list[int]] = {}

    def __reduce__(self) -> tuple[type[Bpe], tuple[list[Merge], str, str, str]]:
        return Bpe, (self._learnt, self.words, self.source_language, self.target_language)

    @classmethod
    def learn(
        cls, lines: Iterable[str], config: BpeConfig, *languages: str, progress: bool = False
    ) -> Bpe:
        """Learn at most `config.merges` merges on sentences that `split_words` cut.

        A pair of pieces that occurs once is not merged (as in subword-nmt).
        """
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = _pre_tokenizer(config.words)
        trainer = trainers.BpeTrainer(
            vocab_size=len(ALPHABET) + config.merges,
            min_frequency=2,
            initial_alphabet=ALPHABET,
            show_progress=False,
        )
        with progress_bar("learning", "merges", None, progress, "BPE") as bar, all_threads():
            tokenizer.train_from_iterator(lines, trainer=trainer)
            # Two merges may give one entry (a+bc and ab+c), so counting entries, as the trainer
            # does, is not counting merges: it may have learnt a few more than asked for.
            learnt = json.loads(tokenizer.to_str())["model"]["merges"][: config.merges]
            bar.update(len(learnt))
        return cls(learnt, config.words, *languages)

    def encode_batch(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """Turn sentences of one of the two languages into ids, without `</s>`."""
        return self.encode_words(split_words(texts, self.words, language))

    def encode_words(self, lines: Sequence[str]) -> list[list[int]]:
        """Turn what `split_words` made into ids, without `</s>`.

        No merge crosses a Moses token. So each token is encoded once and then looked up, in a fifth of the
        time; the table keeps the tokens that come first, since the frequent ones do.
        """
        if self.words == "bytes":
            with all_threads():
                encodings = self._tokenizer.encode_batch_fast(lines, add_special_tokens=False)
            return [encoding.ids for encoding in encodings]
        split = [line.split(" ") for line in lines]
        new = [word for word in {*chain.from_iterable(split)} if word not in self._known]
        self._known.update((word, self._tokenizer.encode(word).ids) for word in new)
        ids = [list(chain.from_iterable(map(self._known.__getitem__, words))) for words in split]
        if len(self._known) > KNOWN_WORDS:
            for word in new:
                del self._known[word]
        return ids

    def decode_batch(self, ids: Sequence[Sequence[int]], language: str) -> list[str]:
        """Turn ids into detokenized text without special tokens; bytes that are no UTF-8 become U+FFFD."""
        special = len(SPECIAL_TOKENS)
        pieces = [[int(piece) for piece in sentence if piece >= special] for sentence in ids]
        with all_threads():
            lines = self._tokenizer.decode_batch(pieces, skip_special_tokens=False)
        if self.words == "bytes":
            return lines
        from roformer.data.moses import detokenizer_of

        detokenizer = detokenizer_of(language)
        return [detokenizer.detokenize(line.split(), unescape=False) for line in lines]

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json, which `tokenizers` reads, and bpe.json: our settings."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        names = (*RULES, "merges", "size", "fingerprint")
        settings = {name: getattr(self, name) for name in names}
        self._tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "bpe.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Bpe:
        """Read what `save` wrote."""
        folder = Path(folder)
        settings, content = (read_json(folder / name) for name in ("bpe.json", "tokenizer.json"))
        try:
            read = cls(content["model"]["merges"], *(settings[key] for key in RULES))
            if read.fingerprint != settings["fingerprint"]:
                raise ValueError("its fingerprint is another")
        except Exception as error:  # the library has no other type
            raise InputError(
                f"{folder} holds a damaged tokenizer ({error!r}): copy it again"
            ) from error
        return read


def _pre_tokenizer(words: str) -> pre_tokenizers.PreTokenizer:
    if words == "bytes":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    spaced = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), spaced])


# --- Moses ---------------------------------------------------------------------------------------


def split_words(texts: Sequence[str], words: str, language: str) -> list[str]:
    """Return the text that merges are learnt on: Moses tokens between single spaces, or the texts.

    Hyphens inside words are split off (`-a`) as in fairseq's preparation, but nothing is escaped
    (`&apos;`), so that an `&amp;` of the text stays as it is.
    """
    if words == "bytes":
        return list(texts)
    from roformer.data.moses import tokenizer_of

    moses = tokenizer_of(language)
    return [
        " ".join(moses.tokenize(text, aggressive_dash_splits=True, escape=False)) for text in texts
    ]
