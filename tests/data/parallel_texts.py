"""Helpers for tests of parallel text: a small text, folders of files, golden sentences."""

import gzip

from roformer.config.wmt import BpeConfig, FilesParallel, FilterConfig
from roformer.data.bpe import Bpe, split_words
from roformer.data.parallel import prepare_parallel
from tests.conftest import REPOSITORY

GOLDEN = [
    tuple(line.split("\t"))
    for line in (REPOSITORY / "tests/data/parallel_golden.en-de.tsv")
    .read_text(encoding="utf-8")
    .splitlines()
]
"""English and German sentences that Moses gives back unchanged."""
ENGLISH, GERMAN = ([pair[side] for pair in GOLDEN] for side in (0, 1))

TEXT = {
    "train": GOLDEN,
    "valid": [("A “quoted” word.", "Ein „Wort“."), ("It rains.", "Es  regnet."), ("No.", "Nein.")],
    "test": [("The street is narrow.", "Die Straße ist eng."), ("Stop!", "Halt! \u2028 !")],
}


def trained(words, merges=300):
    return joint_bpe(ENGLISH, GERMAN, BpeConfig(words=words, merges=merges))


def joint_bpe(english, german, config):
    """Learn merges on both languages."""
    lines = split_words(english, config.words, "en") + split_words(german, config.words, "de")
    return Bpe.learn(lines, config, "en", "de")


def write(folder, *, packed=False, **splits):
    """Write `<split>.en` and `<split>.de`, or the same with .gz; a split is pairs or two bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in (TEXT | splits).items():
        for side, language in enumerate(("en", "de")):
            if isinstance(pairs, list):
                content = "".join(f"{pair[side]}\n" for pair in pairs).encode()
            else:
                content = pairs[side]
            if packed:
                (folder / f"{split}.{language}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / f"{split}.{language}").write_bytes(content)
    return files(folder)


def files(folder, **changes):
    settings = {
        "tokenizer": BpeConfig(words="bytes", merges=200),
        "filter": FilterConfig(max_ratio=None),
    }
    return FilesParallel(path=str(folder), **(settings | changes))


def prepare(config, cache, **options):
    return prepare_parallel(config, cache, **({"workers": 1, "progress": False} | options))
