"""Tables and plot of one run read at several lengths, from the record of `scripts/extension.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from roformer.report.tables import markdown

Record = dict[str, Any]


def extension_tables(record: Record) -> str:
    """Return four Markdown tables: loss by length, what it means, all by row, and loss by place."""
    found = {(row["kind"], row["length"]): row for row in record["rows"]}
    kinds = list(dict.fromkeys(row["kind"] for row in record["rows"]))
    lengths = record["lengths"]
    longest = max(row["length"] for row in record["rows"])

    def cell(kind: str, length: int) -> str:
        row = found.get((kind, length))
        return f"{row['loss']:.3f}" if row else "–"

    def paired(found: dict[str, float]) -> str:
        return f"{found['difference']:+.4f} ± {found['standard_error']:.4f}"

    by_length = [
        ["scaling", *(f"{length}" for length in lengths)],
        *([kind, *(cell(kind, length) for length in lengths)] for kind in kinds),
    ]
    by_rule = [
        ["scaling", *(f"{length}" for length in lengths)],
        *([kind, *(verdict(found.get((kind, length))) for length in lengths)] for kind in kinds),
    ]
    columns: dict[str, Callable[[Record], str]] = {
        "length": lambda row: f"{row['length']:,}",
        "factor": lambda row: f"{row['factor']:g}",
        "loss": lambda row: f"{row['loss']:.4f}",
        "pseudo-perplexity": lambda row: f"{row['pseudo_perplexity']:.2f}",
        "accuracy": lambda row: f"{row['accuracy']:.2%}",
        f"against none at {record['control_length']}": lambda row: paired(row["against_control"]),
        "against none at this length": lambda row: paired(row["against_none"]),
    }
    by_row = [
        ["scaling", *columns],
        *([row["kind"], *(show(row) for show in columns.values())] for row in record["rows"]),
    ]
    parts = range(1, len(record["rows"][0]["segments"]) + 1)
    shown = [(kind, longest) for kind in kinds]
    if (control := ("none", record["control_length"])) not in shown:
        shown.insert(0, control)
    by_place = [
        ["scaling, length", *(f"part {part}" for part in parts)],
        *(
            [f"{kind}, {length:,}", *(f"{loss:.3f}" for loss in found[kind, length]["segments"])]
            for kind, length in shown
        ),
    ]
    captions = (
        f"**Masked-LM loss** of {record['run']}, trained at {record['trained_length']} tokens, by "
        "tokens of a sequence",
        f"By two standard errors: `keeps` where the loss is not above that of none at "
        f"{record['control_length']}, `helps` where it is below that of none at this length",
        f"All of it: {record['predicted']:,} predicted tokens of {record['tokens']:,} in "
        f"{record['windows']} windows, the same in every row; differences of the loss are ± one "
        "standard error over the windows",
        "Loss by place: the windows in equal parts",
    )
    return "\n\n".join(
        f"{caption}\n\n{markdown(lines, text_columns=1)}"
        for caption, lines in zip(captions, (by_length, by_rule, by_row, by_place), strict=True)
    )


def verdict(row: Record | None) -> str:
    """Return whether a scaling keeps the control's loss, and whether it helps at this length."""
    if row is None:
        return "–"
    kept, gained = row["against_control"], row["against_none"]
    words = {
        "keeps": kept["difference"] <= 2 * kept["standard_error"],
        "helps": gained["difference"] < -2 * gained["standard_error"],
    }
    return ", ".join(word for word, holds in words.items() if holds)


def plot_extension(record: Record, path: Path) -> None:
    """Draw loss by length, and by place at the longest, into an SVG or PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    longest = max(row["length"] for row in record["rows"])
    for kind in dict.fromkeys(row["kind"] for row in record["rows"]):
        rows = [row for row in record["rows"] if row["kind"] == kind]
        left.plot([row["length"] for row in rows], [row["loss"] for row in rows], "o-", label=kind)
        segments = next(row["segments"] for row in rows if row["length"] == longest)
        right.plot(range(1, len(segments) + 1), segments, "o-", label=kind)
    left.axvline(record["trained_length"], color="gray", linestyle=":", label="trained length")
    left.set_xscale("log", base=2)
    left.set_xticks(record["lengths"], [str(length) for length in record["lengths"]])
    left.set(xlabel="tokens of a sequence", ylabel="masked-LM loss (nats)")
    right.set(xlabel=f"part of the window, at {longest:,} tokens")
    left.legend()
    figure.suptitle(f"{record['run']} (beyond the paper)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
