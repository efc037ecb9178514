"""Fine-tune on GLUE: `python scripts/glue.py task=[mrpc,stsb] optimizer.learning_rate=[2e-5,5e-5]`."""

from roformer.cli import main

if __name__ == "__main__":
    main("glue")
