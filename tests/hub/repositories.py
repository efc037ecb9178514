"""What stands on the fake Hub: small data in the layout, schema and metadata of the real data sets."""

from __future__ import annotations

import io
import random
import string
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from datasets import ClassLabel, Dataset, Features, Translation, Value
from omegaconf import OmegaConf
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

from roformer.data.toy.cases import case_documents
from tests.conftest import REPOSITORY
from tests.e2e.wmt_runs import ENGLISH, GERMAN

Rows = dict[str, list[Any]]
CONF = REPOSITORY / "conf" / "pipelines"
GLUE = OmegaConf.load(CONF / "glue" / "data" / "hub.yaml").revision
WMT = OmegaConf.load(CONF / "wmt" / "data" / "hub.yaml").revision
WIKIPEDIA = OmegaConf.load(CONF / "text" / "data" / "hub.yaml").sources[0].revision
VOCABULARY = OmegaConf.load(CONF / "text" / "data" / "hub.yaml").tokenizer.revision
"""Commits that the project pins."""
TINY_BERT = "org/tiny-bert"
WORDS = "org/words"
NOUNS = [a + b for a in "bcdfgklmnprst" for b in ("a", "el", "in", "or", "u")]
PAIRS = {"sentence1": Value("string"), "sentence2": Value("string")}
FEATURES = {
    "mrpc": Features(
        PAIRS | {"label": ClassLabel(names=["not_equivalent", "equivalent"]), "idx": Value("int32")}
    ),
    "stsb": Features(PAIRS | {"label": Value("float32"), "idx": Value("int32")}),
    "rte": Features(
        PAIRS | {"label": ClassLabel(names=["entailment", "not_entailment"]), "idx": Value("int32")}
    ),
}
GLUE_SIZES = {"train": 60, "validation": 20, "test": 12}
WMT_SIZES = {"train": 240, "validation": 12, "test": 15}


def sentence(generator: random.Random, words: int = 6) -> str:
    return " ".join(generator.choices(NOUNS, k=words))


# --- data sets -----------------------------------------------------------------------------------


def glue_set(*, without: str | None = None) -> dict[str, bytes]:
    """nyu-mll/glue: one configuration a task, parquet below `<task>/`; `without` a column of mrpc."""
    configs: dict[str, dict[str, Dataset]] = {}
    for task, features in FEATURES.items():
        configs[task] = {}
        for split, count in GLUE_SIZES.items():
            rows = _pairs(random.Random(f"{task} {split}"), count, task, labelled=split != "test")
            table = Dataset.from_dict(rows, features=features)
            if task == "mrpc" and without is not None:
                table = table.remove_columns(without)
            configs[task][split] = table
    return _data_set(configs, {"train": 2})


def _pairs(generator: random.Random, count: int, task: str, *, labelled: bool) -> Rows:
    rows: Rows = {"sentence1": [], "sentence2": [], "label": [], "idx": list(range(count))}
    for _ in range(count):
        first = sentence(generator)
        same = generator.random() < 0.5
        rows["sentence1"].append(first)
        rows["sentence2"].append(first if same else sentence(generator))
        score = round(generator.uniform(3, 5) if same else generator.uniform(0, 3), 2)
        label = score if task == "stsb" else int(same)
        rows["label"].append(label if labelled else -1)
    return rows


def wmt_set(*, without: str | None = None) -> dict[str, bytes]:
    """wmt/wmt14: a column `translation`, several files of the training pairs."""
    configs = {}
    for config in ("de-en", "fr-en"):
        languages = config.split("-")
        features = Features(translation=Translation(languages=languages))
        configs[config] = {}
        for split, count in WMT_SIZES.items():
            generator = random.Random(f"{config} {split}")
            pairs = []
            for _ in range(count):
                words = generator.choices(range(len(ENGLISH)), k=generator.randint(2, 7))
                foreign = " ".join(GERMAN[word] for word in reversed(words))
                pairs.append({languages[0]: foreign, "en": " ".join(ENGLISH[w] for w in words)})
            table = Dataset.from_dict({"translation": pairs}, features=features)
            if without == "translation":
                table = table.rename_column("translation", "text")
            configs[config][split] = table
    return _data_set(configs, {"train": 3})


def wikipedia_set(documents: int = 60) -> dict[str, bytes]:
    """wikimedia/wikipedia: id, url, title, text; one configuration a language and dump."""
    features = Features({name: Value("string") for name in ("id", "url", "title", "text")})
    configs = {}
    for config in ("20231101.en", "20231101.de", "20231101.zh"):
        generator = random.Random(config)
        cases = list(case_documents(documents, 0)) if config.endswith("zh") else []
        rows: Rows = {name: [] for name in features}
        for number in range(documents):
            rows["id"].append(str(number))
            rows["url"].append(f"https://en.wikipedia.org/wiki/{number}")
            rows["title"].append(sentence(generator, 2))
            english = "\n\n".join(sentence(generator, 30) for _ in range(3))
            rows["text"].append(cases[number] if cases else english)
        configs[config] = {"train": Dataset.from_dict(rows, features=features)}
    return _data_set(configs, {"train": 3})


def bookcorpus_set(sentences: int = 500, seed: int = 0) -> dict[str, bytes]:
    """A mirror of BookCorpus: one sentence a row, no configurations."""
    generator = random.Random(seed)
    rows = {"text": [sentence(generator, 12) for _ in range(sentences)]}
    table = Dataset.from_dict(rows, features=Features(text=Value("string")))
    return _data_set({"default": {"train": table}}, {"train": 2}, folder="data")


def _data_set(
    configs: dict[str, dict[str, Dataset]], shards: dict[str, int], folder: str | None = None
) -> dict[str, bytes]:
    """Return the files of a repository: parquet and the card that lists them."""
    files: dict[str, bytes] = {".gitattributes": b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"}
    card: dict[str, list[Any]] = {"dataset_info": [], "configs": []}
    for config, splits in configs.items():
        below = folder or config
        told, listed = [], []
        for split, table in splits.items():
            count, size = shards.get(split, 1), table.data.nbytes
            for number in range(count):
                name = f"{below}/{split}-{number:05d}-of-{count:05d}.parquet"
                stream = io.BytesIO()
                rows = table.shard(count, number, contiguous=True).with_format("arrow")[:]
                # As `to_parquet`, without its bar: the features stand in the file's metadata.
                pq.write_table(rows.cast(table.features.arrow_schema), stream)
                files[name] = stream.getvalue()
            told.append({"name": split, "num_bytes": size, "num_examples": len(table)})
            listed.append({"split": split, "path": f"{below}/{split}-*"})
        features = next(iter(splits.values())).features._to_yaml_list()
        size = sum(row["num_bytes"] for row in told)
        info = {"features": features, "splits": told, "download_size": size, "dataset_size": size}
        card["dataset_info"].append({"config_name": config} | info)
        card["configs"].append({"config_name": config, "data_files": listed})
    text = f"---\n{yaml.safe_dump(card, sort_keys=False)}---\n\n# Made for tests\n"
    return {"README.md": text.encode()} | files


# --- models --------------------------------------------------------------------------------------


def vocabulary() -> list[str]:
    letters = string.ascii_lowercase + string.digits
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return [*special, *letters, *(f"##{letter}" for letter in letters), *NOUNS]


def bert(seed: int = 0, hidden: int = 32) -> dict[str, bytes]:
    """A random BERT as the Hub has it: safetensors beside the same weights of other frameworks."""
    import torch

    state = torch.get_rng_state()
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary()),
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=128,
    )
    model = BertForMaskedLM(config)
    torch.set_rng_state(state)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = folder / "vocab.txt"
        words.write_text("\n".join(vocabulary()) + "\n")
        model.save_pretrained(folder)
        BertTokenizerFast(vocab_file=str(words), do_lower_case=True).save_pretrained(folder)
        words.write_text("\n".join(vocabulary()) + "\n")
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = b"the same weights for another framework" * 10
    for name in ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "onnx/model.onnx"):
        files[name] = other
    return files | {"README.md": b"---\nlicense: apache-2.0\n---\n", ".gitattributes": b"\n"}
