"""Train a translation model and score it: `python scripts/wmt.py model=transformer recipe=mini`."""

from roformer.cli import main

if __name__ == "__main__":
    main("wmt")
