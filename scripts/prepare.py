"""Prepare a pipeline's data alone: `python scripts/prepare.py pipeline=clm data=files data.path=corpus/`."""

from roformer.cli import main_of

if __name__ == "__main__":
    main_of("prepare")
