"""Helpers for tests of labelled data: the GLUE tasks, a tokenizer, folders and rows."""

from omegaconf import OmegaConf

from roformer.config.build import build
from roformer.config.glue import FilesGlue, HubGlue, TaskConfig
from roformer.data.examples import task_rows
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece
from tests.conftest import REPOSITORY

TASKS = {
    file.stem: build(TaskConfig, OmegaConf.load(file))
    for file in sorted((REPOSITORY / "conf" / "pipelines" / "glue" / "task").glob("*.yaml"))
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = WordPiece.bert(
    [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), '"', "."], True
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = HubGlue(revision=COMMIT)

RTE = "index\tsentence1\tsentence2\tlabel\n"
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
GOOD = "0\ta\tb\tentailment\n"
STSB = "index\tsentence1\tsentence2\tscore\n"
MNLI = "index\tsentence1\tsentence2\tlabel1\tgold_label\n"
PAIRS = {
    "train": [("one", "two", 1), ("a \u2028 b", "", 0), ("three", "four", 1)],
    "validation": [("five", "six", 0)],
    "test": [("seven", "eight", -1)],
}


def write(root, name, **files):
    """Write `<root>/<folder of the task>/<key>.tsv`, newlines as they are."""
    folder = root / TASKS[name].files.folder
    folder.mkdir(parents=True, exist_ok=True)
    for key, content in files.items():
        content = content if isinstance(content, bytes) else content.encode()
        (folder / f"{key}.tsv").write_bytes(content)
    return FilesGlue(path=str(root))


def as_files(root):
    """Write PAIRS as the official folder of RTE."""
    names = ["entailment", "not_entailment"]
    bodies = {
        split: "".join(f"{i}\t{a}\t{b}\t{names[n]}\n" for i, (a, b, n) in enumerate(PAIRS[split]))
        for split in ("train", "validation")
    }
    return write(root, "rte", train=RTE + bodies["train"], dev=RTE + bodies["validation"])


def rows(name, data, split="train"):
    """Return index, text, second text or None, and label of each row."""
    examples = task_rows(name, TASKS[name], data).read(split)
    return [(row.number, *(*row.texts, None)[:2], row.label) for row in examples]


def prepare(name, data, cache, tokenizer=TOKENIZER, task=None):
    return task_rows(name, task or TASKS[name], data).prepare(tokenizer, cache, progress=False)
