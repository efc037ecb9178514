"""The blocks of REPORT.md: a trained run read at other lengths."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from roformer.report.drawing import NEUTRAL, Panel, draw_ordered
from roformer.report.tables import Table, figure_markdown, formatted, lines_of


def extension_tables(file: Path) -> list[Table]:
    """Return loss by length, verdicts, all rows, and loss by place, from `measure.py`."""
    record = json.loads(file.read_bytes())
    control = record["control_length"]
    rows = pd.DataFrame(record["rows"]).rename(columns={"kind": "scaling"})
    rows["verdict"] = [verdict(row) for row in record["rows"]]
    for key in ("against_control", "against_none"):
        rows[key] = [f"{one['difference']:+.4f} ± {one['standard_error']:.4f}" for one in rows[key]]
    columns = {
        "scaling": ("scaling", "{}"),
        "length": ("length", "{:,}"),
        "factor": ("factor", "{:g}"),
        "loss": ("loss", "{:.4f}"),
        "pseudo-perplexity": ("pseudo_perplexity", "{:.2f}"),
        "accuracy": ("accuracy", "{:.2%}"),
        f"against none at {control}": ("against_control", "{}"),
        "against none at this length": ("against_none", "{}"),
    }
    by_length = rows.assign(loss=rows.loss.map("{:.3f}".format)).set_index(["scaling", "length"])
    shown = (rows.scaling == "none") & (rows.length == control)
    whole = rows[shown | (rows.length == rows.length.max())]
    names = pd.Index(whole.scaling + whole.length.map(", {:,}".format), name="scaling, length")
    by_place = pd.DataFrame([*whole.segments], names).map("{:.3f}".format)
    about = (
        f"{record['predicted']:,} predicted tokens of {record['tokens']:,} in {record['windows']} "
        "windows, the same in every row; differences of the loss are ± one standard error over the "
        "windows."
    )
    texts = by_length[["loss", "verdict"]].unstack(sort=False)
    loss, verdicts = (
        lines_of(texts[key].reindex(columns=record["lengths"]).fillna("–"))
        for key in ("loss", "verdict")
    )
    trained = f"trained at {record['trained_length']} tokens"
    means = [
        f"keeps: the loss is not above the unscaled loss at {control}, by two standard errors; helps: it "
        "is below the unscaled loss at this length."
    ]
    places = lines_of(by_place.rename(columns=lambda number: f"part {number + 1}"))
    return [
        Table(f"Masked-LM loss of {record['run']}, {trained}, by tokens of a sequence", loss),
        Table("What a scaling does, by tokens of a sequence", verdicts, notes=means),
        Table("All of it", formatted(rows, columns), notes=[about]),
        Table("Loss by place: the windows in equal parts", places),
    ]


def verdict(row: Mapping[str, Any]) -> str:
    """Return whether a scaling keeps the control's loss, and whether it helps at this length."""
    kept, gained = row["against_control"], row["against_none"]
    words = {
        "keeps": kept["difference"] <= 2 * kept["standard_error"],
        "helps": gained["difference"] < -2 * gained["standard_error"],
    }
    return ", ".join(word for word, holds in words.items() if holds)


def draw_extension(file: Path, output: Path) -> str:
    """Draw loss by length, and by place at the longest, of a record of `measure.py`."""
    record = json.loads(file.read_bytes())
    rows = pd.DataFrame(record["rows"]).assign(seed=0)
    rows = rows.assign(name=rows.kind, position=rows.kind)
    longest = int(rows.length.max())  # a learned table may end before the longest length
    parts = rows[rows.length == longest].explode("segments").astype({"segments": float})
    run, trained, lengths = (record[key] for key in ("run", "trained_length", "lengths"))
    places = parts.groupby("name").cumcount() + 1
    by_length = rows.assign(panel=0, x=rows.length, y=rows.loss)
    frame = pd.concat([by_length, parts.assign(panel=1, x=places, y=parts.segments)])
    marks = [("x", trained, NEUTRAL)]
    panels = [
        Panel(
            "tokens of a sequence",
            "masked-LM loss (nats)",
            log="x",
            ticks=lengths,
            references=marks,
        ),
        Panel(f"part of the window, at {longest:,} tokens"),
    ]
    labels = {NEUTRAL: "trained length"}
    draw_ordered(output, frame, panels, references=labels, markers=True, size=(10.0, 4.0))
    return (
        f"Masked-LM loss of {run} by tokens of a sequence, and by place in one of {longest:,} tokens, "
        f"with each scaling of the positions. Trained at {trained:,} tokens; all else is beyond the paper."
    )


def tables(folder: Path, words: list[str]) -> list[Table]:
    """`tables FILE`: the tables of a record."""
    return extension_tables(folder / words[0])


def figure(folder: Path, words: list[str]) -> str:
    """`figure PNG FILE`: the figure of a record, with its caption."""
    name, file = words
    return figure_markdown(draw_extension(folder / file, folder / name), name)
