"""Tokenise a corpus into shards: `python scripts/prepare.py data=files data.path=corpus/`."""

from roformer.cli import run
from roformer.config.schema import PretrainConfig
from roformer.pipelines.pretrain import prepare

if __name__ == "__main__":
    run("pretrain", PretrainConfig, prepare)
