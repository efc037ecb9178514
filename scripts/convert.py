"""Give a published BERT rotary positions: `python scripts/convert.py init_from=FOLDER`."""

from roformer.cli import main

if __name__ == "__main__":
    main("convert")
