"""Fine-tune on GLUE: `python scripts/glue.py task=[mrpc,stsb] optimizer.learning_rate=[2e-5,5e-5]`."""

from roformer.cli import compose, run
from roformer.config.build import build
from roformer.config.glue import GlueConfig
from roformer.config.schema import PretrainConfig


def main(config: GlueConfig) -> None:
    pretraining = build(PretrainConfig, compose("pretrain", list(config.pretraining)))

    from roformer.pipelines.glue import glue  # takes seconds: torch
    from roformer.pipelines.run import first_process
    from roformer.report.glue import glue_tables

    cells = glue(config, pretraining)
    if first_process():
        print(glue_tables(cells))


if __name__ == "__main__":
    run("glue", GlueConfig, main)
