"""Train a byte-level language model: `python scripts/charlm.py model/position=none`."""

from roformer.cli import run
from roformer.config.lm import CharLMConfig
from roformer.pipelines.charlm import charlm

if __name__ == "__main__":
    run("charlm", CharLMConfig, charlm)
