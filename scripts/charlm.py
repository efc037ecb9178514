"""Train a byte-level language model: `python scripts/charlm.py model/position=none`."""

from roformer.cli import main

if __name__ == "__main__":
    main("charlm")
