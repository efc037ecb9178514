"""Compare a converted model with the published one that it came from, without fine-tuning.

    python examples/compare_converted.py my-bert runs/convert/YOUR_RUN --pairs STS-B/dev.tsv --texts articles/

`--pairs` is a TSV with the columns sentence1, sentence2 and score. The script prints the Spearman
correlation of the score with the cosine of the two vectors.

`--texts` are .txt or .jsonl files as `data.path` takes them. Texts of at least twice the longest of
`--lengths` in tokens are read at each length. For each length the script prints

- the error of the last layer against the original: its squared difference over the original's
  variance, on texts of this length (`make convert` takes blocks, pairs and short texts together);
- the share of texts whose second part is the nearest of all second parts to their first part.

Beyond the original's length only the converted model is measured, also with each scaling that it can have.
"""

import csv
import dataclasses
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from scipy.stats import spearmanr
from torch import Tensor

import roformer
from roformer.config.position import (
    DynamicNtkScaling,
    LinearScaling,
    NtkScaling,
    Rotary,
    YarnScaling,
)
from roformer.data.files import JSON_LINES, PLAIN, Columns, file_rows, find_files
from roformer.errors import InputError
from roformer.models.encoder import Encoder
from roformer.script import Arguments, at_least, script


def correlation(model: Any, pairs: pd.DataFrame) -> float:
    """Return the Spearman correlation of scores and cosines."""
    first, second = (model.embed(list(pairs[name])) for name in ("sentence1", "sentence2"))
    cosines = torch.nn.functional.cosine_similarity(first, second)
    return float(spearmanr(cosines, pairs["score"]).statistic)


def scaled(encoder: Encoder, length: int, trained: int) -> Iterator[tuple[str, Encoder]]:
    """Yield the encoder, and beyond its trained length also with each scaling, all with their names."""
    yield "", encoder
    position = encoder.config.position
    if length <= trained or not isinstance(position, Rotary):
        return
    factor = length / trained
    for scaling in (
        LinearScaling(factor=factor),
        NtkScaling(factor=factor),
        DynamicNtkScaling(factor=1.0, trained_length=trained),
        YarnScaling(factor=factor, trained_length=trained),
    ):
        config = dataclasses.replace(
            encoder.config, position=dataclasses.replace(position, scaling=scaling)
        )
        other = Encoder(config, encoder.tokens.num_embeddings).eval()
        other.load_state_dict(encoder.state_dict())
        yield f", {scaling.kind}", other


@torch.no_grad()
def last_states(encoder: Encoder, pieces: Tensor) -> Tensor:
    """Return the last hidden states (2, N, T, D) of both parts of N texts, (2, N, T)."""
    states = torch.cat([encoder(piece) for piece in pieces.flatten(0, 1).split(4)])
    return states.unflatten(0, pieces.shape[:2])


def found_first(states: Tensor) -> float:
    """Return the share of texts whose second part is the nearest to the first; states: (2, N, T, D)."""
    first, second = torch.nn.functional.normalize(states.mean(2), dim=-1)
    nearest = (first @ second.T).argmax(1)
    return nearest.eq(torch.arange(len(nearest))).double().mean().item()


def parts(ids: list[list[int]], length: int, cls: int, sep: int) -> Tensor:
    """Return the first and the second part of each text, with [CLS] and [SEP]: (2, N, length)."""
    size = length - 2
    return torch.tensor(
        [[[cls, *text[s : s + size], sep] for text in ids] for s in (0, size)], dtype=torch.long
    )


@script(prints=True)
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("original", help="a folder or Hub id of a published BERT")
    parser.add_argument("converted", help="a run of make convert")
    parser.add_argument("--pairs", help="TSV of scored pairs of sentences")
    parser.add_argument("--texts", help="long texts: a file, folder or glob")
    parser.add_argument(
        "--separator", default="heading", choices=("heading", "blank_line", "line_break")
    )
    lengths = [128, 256, 512, 1024]
    parser.add_argument("--lengths", nargs="+", type=at_least(3), default=lengths)
    arguments = parser.parse_args()
    if not (arguments.pairs or arguments.texts):
        parser.error("nothing to compare on: give --pairs, --texts or both")
    warnings.filterwarnings("ignore", "not used of")  # the pooler
    models = {
        name: roformer.load_model(getattr(arguments, name)) for name in ("original", "converted")
    }
    tokenizer, other = (model.tokenizer for model in models.values())
    if tokenizer.fingerprint != other.fingerprint:
        raise InputError(f"{arguments.converted} has another vocabulary than {arguments.original}")
    if arguments.pairs:
        if not Path(arguments.pairs).is_file():
            raise InputError(f"--pairs={arguments.pairs} is no file: give a TSV")
        pairs = pd.read_csv(arguments.pairs, sep="\t", quoting=csv.QUOTE_NONE)
        if missing := {"sentence1", "sentence2", "score"}.difference(pairs):
            raise InputError(
                f"{arguments.pairs} has no column {', '.join(sorted(missing))}: add it"
            )
        for name, model in models.items():
            print(f"{name}: Spearman {correlation(model, pairs):.3f} on {len(pairs)} pairs")
    if not arguments.texts:
        return
    files, _ = find_files(arguments.texts, (*PLAIN, *JSON_LINES))
    rows = [
        row for file in files for row in file_rows(file, Columns(("text",)), arguments.separator)
    ]
    longest = max(arguments.lengths)
    ids = tokenizer.encode_batch([row["text"] for _, _, row in rows])
    ids = [list(text) for text in ids if len(text) >= 2 * longest]
    print(f"{len(ids)} of {len(rows)} texts have {2 * longest} tokens")
    if len(ids) < 2:
        raise InputError("a search needs two such texts: give longer ones, or smaller --lengths")
    trained = models["original"].encoder.config.position.longest or longest
    print("tokens per part | model | error | found first")
    for length in arguments.lengths:
        pieces = parts(ids, length, tokenizer.cls_id, tokenizer.sep_id)
        theirs = None
        if length <= trained:
            theirs = last_states(models["original"].encoder, pieces)
            print(f"{length} | original | 0 | {found_first(theirs):.1%}")
        for name, encoder in scaled(models["converted"].encoder, length, trained):
            states = last_states(encoder, pieces)
            error = "-"
            if theirs is not None:
                variance = (theirs - theirs.mean((0, 1, 2))).square().sum()
                error = f"{((states - theirs).square().sum() / variance).item():.3f}"
            print(f"{length} | converted{name} | {error} | {found_first(states):.1%}", flush=True)


if __name__ == "__main__":
    main()
