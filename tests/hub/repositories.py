"""Content of the fake Hub: small data in the layout, schema and metadata of the real data sets."""

import io
import random
import string
import tempfile
from pathlib import Path

import torch
import yaml
from datasets import ClassLabel, Dataset, Features, Value
from omegaconf import OmegaConf
from transformers import BertConfig, BertForMaskedLM

from roformer.data.tokenizers import WordPiece
from tests.conftest import REPOSITORY

CONF = REPOSITORY / "conf" / "pipelines"
TEXT = OmegaConf.load(CONF / "text" / "data" / "hub.yaml")
GLUE = OmegaConf.load(CONF / "glue" / "data" / "hub.yaml").revision
WIKIPEDIA, VOCABULARY = TEXT.sources[0].revision, TEXT.tokenizer.revision
"""Commits that the project pins."""
TINY_BERT = "org/tiny-bert"
NOUNS = [a + b for a in "bcdfgklmnprst" for b in ("a", "el", "in", "or", "u")]


def sentence(generator, words=6):
    return " ".join(generator.choices(NOUNS, k=words))


# --- data sets -----------------------------------------------------------------------------------


def glue_set(without=()):
    """nyu-mll/glue: one configuration a task; without some columns."""
    labels = {
        "mrpc": ClassLabel(names=["not_equivalent", "equivalent"]),
        "stsb": Value("float32"),
    }
    configs = {}
    for task, label in labels.items():
        features = {"sentence1": Value("string"), "sentence2": Value("string")}
        features = Features(features | {"label": label, "idx": Value("int32")})
        configs[task] = {
            split: Dataset.from_list(pairs(task, split, count), features).remove_columns(without)
            for split, count in (("train", 60), ("validation", 20), ("test", 12))
        }
    return data_set(configs, 2)


def pairs(task, split, count):
    generator, rows = random.Random(f"{task} {split}"), []
    for number in range(count):
        first, same = sentence(generator), generator.random() < 0.5
        second = first if same else sentence(generator)
        score = round(generator.uniform(3, 5) if same else generator.uniform(0, 3), 2)
        label = -1 if split == "test" else score if task == "stsb" else int(same)
        rows.append({"sentence1": first, "sentence2": second, "label": label, "idx": number})
    return rows


def wikipedia_set():
    """wikimedia/wikipedia: id, url, title, text; one configuration a language and dump."""
    generator = random.Random(0)
    texts = ["\n\n".join(sentence(generator, 30) for _ in range(3)) for _ in range(60)]
    rows = [
        {"id": str(number), "url": "https://", "title": "a title", "text": text}
        for number, text in enumerate(texts)
    ]
    return data_set({"20231101.en": {"train": Dataset.from_list(rows)}}, 3)


def bookcorpus_set(seed=0):
    """The mirror of BookCorpus: two plain texts, one sentence a line."""
    lines = sentences(seed)
    halves = {f"books_large_p{part + 1}.txt": lines[250 * part :][:250] for part in (0, 1)}
    texts = {name: "".join(f"{line}\n" for line in half) for name, half in halves.items()}
    return {name: text.encode() for name, text in {"README.md": "", **texts}.items()}


def sentence_set(seed):
    """Sentences as Parquet, without configurations."""
    rows = [{"text": line} for line in sentences(seed)]
    return data_set({"default": {"train": Dataset.from_list(rows)}}, 2)


def sentences(seed):
    """Five hundred sentences of twelve words."""
    generator = random.Random(seed)
    return [sentence(generator, 12) for _ in range(500)]


def data_set(configs, shards):
    """Return the files of a repository: parquet, the train split in shards, and the card."""
    files, card = {}, []
    for config, splits in configs.items():
        for split, table in splits.items():
            count = shards if split == "train" else 1
            for number in range(count):
                stream = io.BytesIO()
                table.shard(count, number, contiguous=True).to_parquet(stream)
                files[f"{config}/{split}-{number:05d}-of-{count:05d}.parquet"] = stream.getvalue()
        places = [{"split": split, "path": f"{config}/{split}-*"} for split in splits]
        card.append({"config_name": config, "data_files": places})
    text = f"---\n{yaml.safe_dump({'configs': card})}---\n\n# Made for tests\n"
    return {"README.md": text.encode()} | files


# --- models --------------------------------------------------------------------------------------


def bert():
    """A random BERT as the Hub has it: safetensors next to the same weights of other frameworks."""
    letters = string.ascii_lowercase + string.digits
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *letters, *(f"##{letter}" for letter in letters), *NOUNS]
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    with tempfile.TemporaryDirectory() as name, torch.random.fork_rng():
        torch.manual_seed(0)
        folder = Path(name)
        BertForMaskedLM(config).save_pretrained(folder)
        vocabulary = folder / "vocab.txt"
        vocabulary.write_text("\n".join(words) + "\n")
        WordPiece.bert(words, lowercase=True).to_transformers().save_pretrained(folder)
        vocabulary.write_text("\n".join(words) + "\n")
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
    others = ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "onnx/model.onnx")
    return files | dict.fromkeys(others, b"the same weights for another framework")
