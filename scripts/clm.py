"""Train a causal language model: `python scripts/clm.py model/position=learned recipe=clm_mini`."""

from roformer.cli import run
from roformer.config.lm import CausalLMConfig
from roformer.pipelines.clm import clm

if __name__ == "__main__":
    run("clm", CausalLMConfig, clm)
