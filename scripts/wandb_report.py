"""Build a wandb workspace and report of the project's runs: `python scripts/wandb_report.py ENTITY/PROJECT`.

For who is logged in to wandb; everything else here works without it. Both have the same sections:
curves against updates and tokens, bars of scores, throughput. Runs that differ in the seed alone are
averaged, with a band of one standard deviation. Each call makes new ones.

Runs that were logged offline are uploaded by
    wandb sync runs/*/*/wandb/offline-run-*
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import wandb
import wandb_workspaces.reports.v2
import wandb_workspaces.workspaces as workspaces

from roformer.training.tracking import within

reports: Any = wandb_workspaces.reports.v2  # exports its names in a way that mypy does not follow
PATIENCE = 120.0
"""Seconds until a server that does not answer is given up."""
SYNC = "wandb sync runs/*/*/wandb/offline-run-*"
UPDATES, TOKENS = "global_step", "data/tokens"
GROUPS = (
    "recipe",
    "data.kind",
    "model.name",
    "model.position.kind",
    "model.attention.kind",
    "training.max_length",
    "optimizer.learning_rate",
)
"""Config keys that tell arms apart: runs with the same are averaged."""
COLUMNS = 2
"""Panels beside each other; a report is 24 units wide."""


class Panel(NamedTuple):
    """A chart: a line over `x`, or bars of the last values where there is no `x`."""

    title: str
    metric: str
    x: str = ""


class Part(NamedTuple):
    """A section of the workspace and of the report."""

    title: str
    about: str
    panels: Sequence[Panel]
    having: str = ""
    """Config key, a number, that only the runs of this section have; all runs where empty."""


def curves(title: str, metric: str, read: str = "tokens") -> list[Panel]:
    """Return the lines of a metric by updates, and by what was read."""
    return [
        Panel(f"{title} by updates", metric, UPDATES),
        Panel(f"{title} by {read}", metric, TOKENS),
    ]


PARTS = (
    Part(
        "Pre-training",
        "The masked-LM loss on a fixed validation sample with fixed masks, by updates and by tokens.",
        [
            *curves("Validation loss", "valid/mlm_loss"),
            Panel("Validation accuracy by updates", "valid/mlm_accuracy", UPDATES),
            Panel("Training loss by updates", "train/loss", UPDATES),
        ],
        having="masking.probability",
    ),
    Part(
        "GLUE, validation",
        "The headline metric of each task after the last epoch. Every learning rate has a bar of its "
        "own: the tables of scripts/glue_table.py choose among them.",
        [
            Panel("MRPC, F1", "mrpc/f1"),
            Panel("SST-2, accuracy", "sst2/accuracy"),
            Panel("QNLI, accuracy", "qnli/accuracy"),
            Panel("STS-B, Spearman", "stsb/spearman"),
            Panel("QQP, F1", "qqp/f1"),
            Panel("MNLI matched, accuracy", "mnli/accuracy_matched"),
            Panel("MNLI mismatched, accuracy", "mnli/accuracy_mismatched"),
        ],
        having="training.small_task_examples",
    ),
    Part(
        "Translation",
        "BLEU of the averaged checkpoints on the test set. sacreBLEU and compound BLEU are two "
        "measures; bars of different test sets or signatures, which a run's summary.json has, are "
        "not comparable.",
        [
            Panel("Test, sacreBLEU", "test/sacrebleu"),
            Panel("Test, compound BLEU", "test/bleu_compound"),
            *curves("Validation loss", "valid/loss"),
        ],
        having="search.beam",
    ),
    Part(
        "Byte-level language models",
        "Bits per byte of a fixed validation sample, by updates and by bytes.",
        curves("Bits per byte", "valid/bits_per_byte", "bytes"),
        having="data.test_fraction",
    ),
    Part(
        "Causal language models",
        "Perplexity of a fixed validation sample, by updates and by tokens.",
        curves("Perplexity", "valid/perplexity"),
    ),
    Part(
        "Triplets of long documents",
        "How often the closer document has the higher score.",
        [
            Panel("Validation accuracy by updates", "valid/accuracy", UPDATES),
            Panel("Test accuracy", "test/accuracy"),
        ],
    ),
    Part(
        "Throughput",
        "Tokens a second of training, and peak memory. Comparable on one machine alone.",
        [
            Panel("Tokens a second", "perf/tokens_per_second", UPDATES),
            Panel("Tokens a second and device", "perf/tokens_per_second_per_device", UPDATES),
            Panel("Peak memory, bytes", "perf/peak_memory_bytes", UPDATES),
        ],
    ),
)
TITLE = "RoFormer reproduction"
ABOUT = (
    "Runs of this project, averaged over seeds: one line or bar a recipe, data, model, position "
    "encoding, attention, length of pairs and learning rate. Runs that differ in anything else are "
    "averaged too; filter them before reading a difference. None of these numbers has the scale of "
    "the paper's tables. What was asked and what came out is in experiments/ of the repository, from "
    "metrics.jsonl, which needs no wandb."
)


def build_workspace(entity: str, project: str) -> workspaces.Workspace:
    """Return the workspace, not saved."""
    sections = [
        workspaces.Section(name=part.title, panels=_charts(part), is_open=True) for part in PARTS
    ]
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=TITLE,
        sections=sections,
        settings=workspaces.WorkspaceSettings(x_axis=UPDATES, max_runs=20),
        runset_settings=workspaces.RunsetSettings(
            groupby=[workspaces.Config(key) for key in GROUPS]
        ),
    )


def build_report(entity: str, project: str, *, online: bool) -> Any:
    """Return the report, not saved; offline its runs are those of whichever project it is saved to."""
    runs_of = {"entity": entity, "project": project} if online else {}
    blocks: list[Any] = [reports.P(ABOUT), reports.TableOfContents()]
    for part in PARTS:
        runset = reports.Runset(
            **runs_of,
            name=part.title,
            groupby=[f"config.{key}" for key in GROUPS],
            filters=[workspaces.Config(_stored(part.having)) >= 0] if part.having else [],
        )
        grid = reports.PanelGrid(runsets=[runset], panels=_charts(part))
        blocks += [reports.H1(part.title), reports.P(part.about), grid]
    return reports.Report(
        entity=entity,
        project=project,
        title=TITLE,
        description="Pre-training, fine-tuning, translation, language models, triplets and throughput",
        blocks=blocks,
        width="fluid",
    )


def spec(entity: str, project: str) -> dict[str, Any]:
    """Return what would be saved, as plain data; needs neither a network nor an account."""
    workspace, report = (
        build_workspace(entity, project),
        build_report(entity, project, online=False),
    )
    return {
        "project": f"{entity}/{project}",
        "workspace": workspace._to_model().spec.model_dump(
            mode="json", by_alias=True, exclude_none=True
        ),
        "report": report._to_model().spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def save(entity: str, project: str, *, draft: bool) -> None:
    """Save both to wandb and print where they are.

    Raises:
        Exception: what wandb makes of no network, a wrong key or a missing project.
    """
    # The report first: it looks the project up, before anything is written.
    report = build_report(entity, project, online=True).save(draft=draft)
    workspace = build_workspace(entity, project).save()
    print(f"report{' (draft)' if draft else ''}: {report.url}\nworkspace: {workspace.url}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("project", metavar="ENTITY/PROJECT", help="where the runs are")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--draft", action="store_true", help="a report that you alone see; the default"
    )
    how.add_argument(
        "--publish", action="store_true", help="a report that the project's readers see"
    )
    how.add_argument(
        "--print", "--dry-run", action="store_true", help="print both as JSON and save nothing"
    )
    arguments = parser.parse_args()
    entity, _, project = arguments.project.partition("/")
    if not entity or not project or "/" in project:
        _stop(f"{arguments.project} is no ENTITY/PROJECT: give both, as in your-name/roformer")
    if arguments.print:
        print(json.dumps(spec(entity, project), indent=1))
        return
    try:
        within(PATIENCE, _log_in)
        within(PATIENCE, lambda: save(entity, project, draft=not arguments.publish))
    except wandb.errors.UsageError as error:
        _stop(f"wandb has no login ({_line(error)}): run wandb login, then this again")
    except TimeoutError:
        _stop(f"wandb did not answer in {PATIENCE:.0f} s: is there a network? --print needs none")
    except (
        Exception
    ) as error:  # its types for no network and a refused key change with its versions
        if "not found" in str(error):
            _stop(
                f"wandb has no project {entity}/{project} that this login may see: check the name, or "
                f"upload runs first ({SYNC})"
            )
        _stop(
            f"wandb could not be reached or refused ({_line(error)}): check the network and wandb login "
            "--relogin; --print needs neither"
        )
    print(f"Runs that were logged offline are not in it until they are uploaded: {SYNC}")


def _log_in() -> None:
    if not wandb.login(prompt=False):
        raise wandb.errors.UsageError("no key")


def _charts(part: Part) -> list[Any]:
    """Return the panels of a part, two beside each other."""
    charts: list[Any] = []
    for place, panel in enumerate(part.panels):
        width = 24 // COLUMNS
        layout = reports.Layout(x=place % COLUMNS * width, y=place // COLUMNS * 8, w=width, h=8)
        averaged: dict[str, Any] = {
            "title": panel.title,
            "groupby_aggfunc": "mean",
            "groupby_rangefunc": "stddev",
            "max_runs_to_show": 20,
            "layout": layout,
        }
        if panel.x:
            names = {"title_x": {UPDATES: "updates", TOKENS: "tokens"}[panel.x]}
            charts.append(reports.LinePlot(x=panel.x, y=[panel.metric], **names, **averaged))
        else:
            charts.append(reports.BarPlot(metrics=[panel.metric], **averaged))
    return charts


def _stored(key: str) -> str:
    """Return a config key as filters take it: wandb stores `value` below the first word."""
    first, _, rest = key.partition(".")
    return f"{first}.value.{rest}"


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def _stop(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr, flush=True)
    os._exit(2)  # at a usual exit wandb waits for its service, which may be what does not answer


if __name__ == "__main__":
    main()
