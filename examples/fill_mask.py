"""Predict masked words with a pre-trained model.

    python examples/fill_mask.py runs/pretrain/YOUR_RUN "Returns the [MASK] of the array."

The model may be a run of this repository, a Hugging Face folder or a Hub id.
"""

import roformer
from roformer.script import Arguments, script


@script(prints=True)
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("model", help="a run, a folder or a Hub id")
    parser.add_argument("texts", nargs="+", help="texts with one or more [MASK]")
    parser.add_argument("--top", type=int, default=5, help="words to show for each [MASK]")
    arguments = parser.parse_args()
    model = roformer.load_model(arguments.model)
    for text in arguments.texts:
        print(text)
        for place, candidates in enumerate(model.fill_mask(text, top=arguments.top), start=1):
            shown = "  ".join(f"{word} {share:.1%}" for word, share in candidates)
            print(f"  [MASK] {place}: {shown}")


if __name__ == "__main__":
    main()
