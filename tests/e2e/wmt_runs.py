"""A small parallel text and small translation runs on it."""

import random
from pathlib import Path

from accelerate.state import AcceleratorState, PartialState

from roformer.cli import compose
from roformer.config.build import build
from roformer.config.wmt import WmtConfig
from roformer.pipelines.run import train

SMALL = [
    "recipe=smoke",
    "tracker=none",
    "data=files",
    "data.tokenizer.words=bytes",
    "data.tokenizer.merges=100",
    "data.max_train_pairs=null",
    "training.steps=24",
    "training.tokens_per_update=256",
    "training.bucket_tokens=128",
    "training.log_every=4",
    "training.evaluate_every=12",
    "training.checkpoint_every=6",
    "training.average=3",
    "training.valid_bleu_sentences=4",
    "runtime.device=cpu",
    "runtime.progress=false",
    # A test must not change the process that the others run in.
    "runtime.tune_process=false",
]
ENGLISH = ["red", "blue", "old", "new", "cat", "dog", "house", "tree", "sees", "likes", "and"]
GERMAN = ["rot", "blau", "alt", "neu", "Katze", "Hund", "Haus", "Baum", "sieht", "mag", "und"]


def write_parallel_text(folder: Path, pairs: int = 300) -> None:
    """Word for word, the last word first: so order counts."""
    generator = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    seen = set()
    for split, count in (("train", pairs), ("valid", 12), ("test", 15)):
        lines = []
        while len(lines) < count:
            words = tuple(generator.choices(range(len(ENGLISH)), k=generator.randint(2, 7)))
            if words not in seen:
                seen.add(words)
                lines.append(words)
        for language, lexicon, step in (("en", ENGLISH, 1), ("de", GERMAN, -1)):
            text = "".join(" ".join(lexicon[w] for w in words[::step]) + "\n" for words in lines)
            (folder / f"{split}.{language}").write_text(text)


def small_run(arguments, *overrides, runs="runs"):
    """Run in this process; return (summary, run folder)."""
    AcceleratorState._reset_state()
    PartialState._reset_state()
    where = next(a for a in arguments if a.startswith("runtime.runs_dir="))
    config = build(
        WmtConfig, compose("wmt", [*arguments, *overrides, f"{where.removesuffix('runs')}{runs}"])
    )
    summary = train("wmt", config)
    return summary, Path(config.runtime.runs_dir) / "wmt" / summary["run_id"]
