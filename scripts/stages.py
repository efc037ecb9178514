"""Pre-train in stages, as the paper's Table 4: `python scripts/stages.py recipe=mini`."""

from roformer.cli import CONF, run
from roformer.config.stages import StagesConfig
from roformer.errors import InputError


def main(config: StagesConfig) -> None:
    from roformer.pipelines.run import first_process  # takes seconds: torch
    from roformer.pipelines.stages import train_stages
    from roformer.report.records import RecordError
    from roformer.report.stages import stages_table

    folders = train_stages(config)
    if first_process():
        try:
            print(stages_table(CONF.parent / "experiments" / "paper.yaml", folders).markdown())
        except RecordError as error:
            raise InputError(str(error)) from error


if __name__ == "__main__":
    run("stages", StagesConfig, main)
