"""Fine-tune on triplets of documents: `python scripts/scm.py preset=roformer_1024 recipe=mini`."""

from roformer.cli import compose, run
from roformer.config.build import build
from roformer.config.schema import PretrainConfig
from roformer.config.scm import ScmConfig


def main(config: ScmConfig) -> None:
    pretraining = build(PretrainConfig, compose("pretrain", list(config.pretraining)))

    from roformer.pipelines.run import first_process  # takes seconds: torch
    from roformer.pipelines.scm import scm

    summary = scm(config, pretraining)
    if first_process():
        metrics = summary["best"]["metrics"] | {
            name: value for name, value in summary["metrics"].items() if name.startswith("test/")
        }
        told = [f"{name} {value:.1%}" for name, value in metrics.items() if "/accuracy" in name]
        print(
            f"{', '.join(told)} after {summary['steps']:,} updates, {summary['tokens']:,} tokens, "
            f"{summary['wall_seconds']:.0f} s [{summary['status']}]"
        )
        print(f"run: {config.runtime.runs_dir}/scm/{summary['run_id']}")


if __name__ == "__main__":
    run("scm", ScmConfig, main)
