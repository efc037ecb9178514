"""A small parallel text and small translation runs on it."""

import random
from pathlib import Path

from tests.e2e.conftest import COMMON, STEPS, run_in_process

SMALL = [
    *(*COMMON, "data=files", "data.tokenizer.words=bytes", "data.tokenizer.merges=100"),
    *("data.max_train_pairs=null", *(f"training.{key}" for key in STEPS), "training.average=3"),
    *("training.tokens_per_update=256", "training.bucket_tokens=128"),
    "training.valid_bleu_sentences=4",
]
ENGLISH = ["red", "blue", "old", "new", "cat", "dog", "house", "tree", "sees", "likes", "and"]
GERMAN = ["rot", "blau", "alt", "neu", "Katze", "Hund", "Haus", "Baum", "sieht", "mag", "und"]


def write_parallel_text(folder: Path, pairs: int = 300, longest: int = 7) -> None:
    """Word for word, the last word first: so order counts."""
    generator = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    seen = set()
    for split, count in (("train", pairs), ("valid", 12), ("test", 15)):
        lines = []
        while len(lines) < count:
            words = tuple(generator.choices(range(len(ENGLISH)), k=generator.randint(2, longest)))
            if words not in seen:
                seen.add(words)
                lines.append(words)
        for language, lexicon, step in (("en", ENGLISH, 1), ("de", GERMAN, -1)):
            text = "".join(" ".join(lexicon[w] for w in words[::step]) + "\n" for words in lines)
            (folder / f"{split}.{language}").write_text(text)


def small_run(arguments, *overrides, runs="runs"):
    """Run in this process; see `run_in_process`."""
    return run_in_process("wmt", arguments, *overrides, runs=runs)
