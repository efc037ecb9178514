"""Write the interactive figure of docs/rope.md: `python scripts/rope.py`, or `--output rope.html`.

Turning pairs of dimensions, and the score and its bound by distance, with sliders for position, base and
head size, in one HTML file that needs no network.
"""

import json
from pathlib import Path
from string import Template

import torch
from plotly.offline import get_plotlyjs

from roformer.nn.rotary import decay_bound, rotary_angles, rotary_frequencies
from roformer.script import Arguments, script
from roformer.training.records import write_atomically

FIGURE = Path(__file__).parents[1] / "docs" / "rope" / "figure.html"
BASES = (100, 1_000, 10_000, 100_000, 500_000, 1_000_000)
HEAD_SIZES = (16, 32, 64, 128, 256)
FARTHEST = 512


def curves(head_dim: int, base: float) -> dict[str, list[float]]:
    """Return the curves of a head: θ_i; by distance the score of equal pairs, from 1, and the bound."""
    distances = torch.arange(FARTHEST + 1)
    return {
        "frequencies": rotary_frequencies(head_dim, base).tolist(),
        "score": rounded(rotary_angles(distances, head_dim, base).cos().mean(-1)),
        "bound": rounded(decay_bound(distances, head_dim, base)),
    }


def rounded(values: torch.Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]


def build_page() -> str:
    """Return the page: plotly, the curves of every base and head size, and the script that shows them."""
    heads = {str(base): {str(d): curves(d, base) for d in HEAD_SIZES} for base in BASES}
    return Template(FIGURE.read_text(encoding="utf-8")).substitute(
        farthest=FARTHEST, plotly=get_plotlyjs(), heads=json.dumps(heads, separators=(",", ":"))
    )


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/report/rope.html"))
    output = parser.parse_args().output
    output.parent.mkdir(parents=True, exist_ok=True)
    page = build_page()
    write_atomically(output, page)
    print(f"{output}: {len(page.encode()) / 1e6:.1f} MB, opens without a network")


if __name__ == "__main__":
    main()
