"""Print what a pre-training would cost: `python scripts/plan.py recipe=paper devices=8`."""

from roformer.cli import run
from roformer.config.schema import PlanConfig
from roformer.pipelines.plan import plan

if __name__ == "__main__":
    run("plan", PlanConfig, plan)
