"""Train a translation model and score it: `python scripts/wmt.py model=transformer recipe=mini`."""

from roformer.cli import run
from roformer.config.wmt import WmtConfig


def main(config: WmtConfig) -> None:
    from roformer.pipelines.wmt import wmt  # takes seconds: torch

    wmt(config)


if __name__ == "__main__":
    run("wmt", WmtConfig, main)
