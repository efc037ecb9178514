"""Print what a training would cost: `python scripts/plan.py pipeline=wmt recipe=paper devices=8`."""

from roformer.cli import main_of
from roformer.script import end_with_reader

if __name__ == "__main__":
    end_with_reader()
    main_of("plan")
