"""Train a byte-level language model: `python scripts/charlm.py model/position=none`."""

from roformer.cli import run
from roformer.config.lm import CharLMConfig


def main(config: CharLMConfig) -> None:
    from roformer.pipelines.charlm import charlm  # takes seconds: torch

    charlm(config)


if __name__ == "__main__":
    run("charlm", CharLMConfig, main)
