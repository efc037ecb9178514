"""Train a translation model and score it: `python scripts/wmt.py model=transformer recipe=wmt_mini`."""

from roformer.cli import run
from roformer.config.wmt import WmtConfig
from roformer.pipelines.wmt import wmt

if __name__ == "__main__":
    run("wmt", WmtConfig, wmt)
