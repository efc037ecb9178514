"""Pre-train in stages, as the paper's Table 4: `python scripts/stages.py recipe=stages_mini`."""

from roformer.cli import CONF, run
from roformer.config.stages import StagesConfig


def main(config: StagesConfig) -> None:
    from roformer.pipelines.run import first_process  # takes seconds: torch
    from roformer.pipelines.stages import train_stages
    from roformer.report.stages import stages_table

    folders = train_stages(config)
    if first_process():
        print(stages_table(CONF.parent / "experiments" / "paper.yaml", folders).markdown())


if __name__ == "__main__":
    run("stages", StagesConfig, main)
