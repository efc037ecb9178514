"""Helpers for tests of token shards: a small corpus of numbered documents, in a file of rows."""

import json

from roformer.config.schema import FilesText, TokenizerConfig

TEXTS = [f"Document {i} tells about {i * i} things, {'and more ' * (i % 7)}so." for i in range(300)]


def corpus(folder, texts=TEXTS, **options):
    folder.mkdir(exist_ok=True)
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    options = {"tokenizer": TokenizerConfig(vocab_size=200), **options}
    return FilesText(path=str(folder), **options)
