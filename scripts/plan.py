"""Print what a training would cost: `python scripts/plan.py pipeline=wmt recipe=paper devices=8`."""

import sys
from collections.abc import Callable
from typing import Any

from roformer.cli import one_line_errors, run
from roformer.config.plan import CausalLMPlan, CharLMPlan, PretrainPlan, StagesPlan, WmtPlan
from roformer.errors import InputError
from roformer.stdout import end_with_reader

PIPELINES: dict[str, type[Any]] = {
    "pretrain": PretrainPlan,
    "stages": StagesPlan,
    "wmt": WmtPlan,
    "charlm": CharLMPlan,
    "clm": CausalLMPlan,
}


def pipeline_of(arguments: list[str]) -> str:
    """Take `pipeline=` out of the overrides and return it; pretrain without one.

    Raises:
        InputError: a pipeline that has no plan, or a sweep, which would start trainings.
    """
    named = [argument for argument in arguments if argument.startswith("pipeline=")]
    for argument in named:
        arguments.remove(argument)
    pipeline = named[-1].partition("=")[2] if named else "pretrain"
    if pipeline not in PIPELINES:
        raise InputError(
            f"pipeline={pipeline} has no plan: choose of {', '.join(PIPELINES)} (what glue and scm "
            "cost depends on the lengths of their texts)"
        )
    if {"-m", "--multirun"} & set(arguments):
        raise InputError("a plan is of one config: leave --multirun out")
    return pipeline


def main(config: Any) -> None:
    from roformer.pipelines import plan  # takes seconds: torch

    plans: dict[type, Callable[[Any], object]] = {
        PretrainPlan: plan.plan_pretraining,
        StagesPlan: plan.plan_stages,
        WmtPlan: plan.plan_translation,
        CharLMPlan: plan.plan_language_model,
        CausalLMPlan: plan.plan_language_model,
    }
    plans[type(config)](config)


if __name__ == "__main__":
    end_with_reader()
    arguments = sys.argv[1:]
    with one_line_errors():
        pipeline = pipeline_of(arguments)
    sys.argv[1:] = arguments
    run(pipeline, PIPELINES[pipeline], main)
