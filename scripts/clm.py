"""Train a causal language model: `python scripts/clm.py model/position=learned recipe=mini`."""

from roformer.cli import run
from roformer.config.lm import CausalLMConfig


def main(config: CausalLMConfig) -> None:
    from roformer.pipelines.clm import clm  # takes seconds: torch

    clm(config)


if __name__ == "__main__":
    run("clm", CausalLMConfig, main)
