"""Pre-train an encoder: `python scripts/pretrain.py model=bert recipe=small data=files data.path=…`."""

from roformer.cli import main

if __name__ == "__main__":
    main("pretrain")
