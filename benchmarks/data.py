"""Preparing text against only `tokenizers`: the same documents and vocabulary, one core.

Ours reads the files, drops duplicates, holds documents out, encodes, writes token lists and seals them;
the peer encodes texts that are in memory, and keeps nothing.
"""

from __future__ import annotations

import json
import time
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Row, in_turns, row
from roformer.config.schema import BuiltinText, FilesText, TokenizerConfig
from roformer.data.text import CHARACTERS, open_documents, prepare_text
from roformer.data.tokenizers import load_wordpiece, use_threads
from roformer.data.work import batches

BYTES = 10_000_000
"""Of the built-in text; more is repeated with a number at its start, since duplicates are dropped."""
VOCABULARY = 8192
GOAL = 0.8


def bench_data(*, rounds: int) -> list[Row]:
    """Return the row of preparing text: the ratio is the peer's time over ours."""
    with TemporaryDirectory() as folder:
        texts = write_texts(Path(folder))
        tokenizer = TokenizerConfig(source="train", vocab_size=VOCABULARY)
        learnt = prepare_text(
            FilesText(path=str(texts), tokenizer=tokenizer), folder, progress=False
        )
        request = {"texts": str(texts), "vocabulary": str(learnt.folder / "tokenizer")}
        seconds = in_turns(measure_data, [request], rounds=rounds)
        size = texts.stat().st_size
    found = row(
        "preparing text on one core, against tokenizers alone",
        seconds["tokenizers"],
        seconds["ours"],
        goal=GOAL,
        deviations="none: same documents, same ids",
    )
    return [{**found, "ours_megabytes_per_second": size / 1e6 / found["ours_seconds"]}]


def write_texts(folder: Path) -> Path:
    """Write `BYTES` of documents of the built-in text, one per line."""
    documents = [example.texts[0] for example in open_documents(BuiltinText()).rows()]
    file, written = folder / "texts.jsonl", 0
    with file.open("w") as out:
        for turn, document in ((turn, one) for turn in count() for one in documents):
            written += out.write(json.dumps({"text": f"{turn} {document}"}) + "\n")
            if written >= BYTES:
                break
    return file


def measure_data(*, texts: str, vocabulary: str) -> dict[str, list[float]]:
    """Return the seconds of both sides in this process."""
    use_threads(1)
    config = FilesText(path=texts, tokenizer=TokenizerConfig(source=vocabulary))
    tokenizer = load_wordpiece(config.tokenizer)
    with open(texts) as lines:
        documents = [json.loads(line)["text"] for line in lines]
    began = time.perf_counter()
    for batch in batches(documents, CHARACTERS, weight=len):
        tokenizer.library.encode_batch_fast(batch, add_special_tokens=False)
    alone = time.perf_counter() - began
    with TemporaryDirectory() as cache:
        began = time.perf_counter()
        prepare_text(config, cache, workers=1, progress=False)
        return {"tokenizers": [alone], "ours": [time.perf_counter() - began]}
