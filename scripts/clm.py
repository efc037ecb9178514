"""Train a causal language model: `python scripts/clm.py model/position=learned recipe=mini`."""

from roformer.cli import main

if __name__ == "__main__":
    main("clm")
