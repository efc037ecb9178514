"""Tokenise a corpus into shards: `python scripts/prepare.py data=files data.path=corpus/`."""

from roformer.cli import run
from roformer.config.schema import PretrainConfig


def main(config: PretrainConfig) -> None:
    from roformer.pipelines.pretrain import prepare  # takes seconds: torch

    prepare(config)


if __name__ == "__main__":
    run("pretrain", PretrainConfig, main)
