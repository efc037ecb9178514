"""Fine-tune on triplets of documents: `python scripts/scm.py preset=roformer_1024 recipe=mini`."""

from roformer.cli import main

if __name__ == "__main__":
    main("scm")
