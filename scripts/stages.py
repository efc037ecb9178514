"""Pre-train in stages, as the paper's Table 4: `python scripts/stages.py recipe=mini`."""

from roformer.cli import main

if __name__ == "__main__":
    main("stages")
