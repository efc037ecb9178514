"""Pre-train an encoder: `python scripts/pretrain.py model=bert recipe=small data=files data.path=…`."""

from roformer.cli import run
from roformer.config.schema import PretrainConfig


def main(config: PretrainConfig) -> None:
    from roformer.pipelines.pretrain import pretrain  # takes seconds: torch

    pretrain(config)


if __name__ == "__main__":
    run("pretrain", PretrainConfig, main)
