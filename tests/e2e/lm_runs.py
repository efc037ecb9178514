"""Small language-model runs of both kinds, on the corpus of the pre-training tests."""

from pathlib import Path

from accelerate.state import AcceleratorState, PartialState

from roformer.cli import compose
from roformer.config.build import build
from roformer.config.lm import CausalLMConfig, CharLMConfig
from roformer.pipelines.run import train

COMMON = [
    "tracker=none",
    "training.steps=24",
    "training.batch_size=8",
    "training.sequence_length=32",
    "training.log_every=4",
    "training.evaluate_every=12",
    "training.checkpoint_every=6",
    "training.valid_sequences=16",
    "runtime.device=cpu",
    "runtime.progress=false",
    "runtime.keep_checkpoints=10",
    # A test must not change the process that the others run in.
    "runtime.tune_process=false",
]
SMALL = {
    "charlm": [
        "recipe=smoke",
        "data=files",
        "data.max_bytes=40000",
        "model.attention.features=32",
        "model.attention.redraw_interval=10",
        *COMMON,
    ],
    "clm": [
        "recipe=smoke",
        "data=files",
        "data.max_documents=null",
        "data.tokenizer.vocab_size=200",
        *COMMON,
    ],
}
PIPELINES = {"charlm": CharLMConfig, "clm": CausalLMConfig}


def small_run(pipeline: str, where: list[str], *overrides: str, runs: str = "runs"):
    """Run in this process; return (summary, run folder)."""
    AcceleratorState._reset_state()
    PartialState._reset_state()
    folder = next(a for a in where if a.startswith("runtime.runs_dir=")).removesuffix("runs")
    arguments = [*SMALL[pipeline], *where, *overrides, f"{folder}{runs}"]
    config = build(PIPELINES[pipeline], compose(pipeline, arguments))
    summary = train(pipeline, config)
    return summary, Path(config.runtime.runs_dir) / pipeline / summary["run_id"]
