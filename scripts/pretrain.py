"""Pre-train an encoder: `python scripts/pretrain.py model=bert recipe=small data=files data.path=…`."""

from roformer.cli import run
from roformer.config.schema import PretrainConfig
from roformer.pipelines.pretrain import pretrain

if __name__ == "__main__":
    run("pretrain", PretrainConfig, pretrain)
