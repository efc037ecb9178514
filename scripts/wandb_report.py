"""Build a wandb workspace and report of the project's runs: `python scripts/wandb_report.py ENTITY/PROJECT`.

Both have a section for each pipeline with recorded runs, curves of what is validated and bars of scores, and
one of throughput. Runs that differ in the seed alone are averaged, with a band of one standard deviation.
Each call makes new ones. Runs that were logged offline are uploaded by
    wandb sync runs/*/*/wandb/offline-run-*
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import wandb
import wandb_workspaces.reports.v2
import wandb_workspaces.workspaces as workspaces

from roformer.errors import one_line
from roformer.pipelines import registry
from roformer.report.runs import read_runs

reports: Any = wandb_workspaces.reports.v2  # exports its names in a way that mypy does not follow
RECORDS = Path(__file__).resolve().parents[1] / "experiments"
PATIENCE = 120.0
"""Seconds until a server that does not answer is given up."""
SYNC = "wandb sync runs/*/*/wandb/offline-run-*"
STEPS, TOKENS = "global_step", "data/tokens"
UNITS = {STEPS: "steps", TOKENS: "tokens"}
NO_SCORES = re.compile(r"(train|perf|data)/.*|.*(unigram|constant|_single|_at_\d).*")
THROUGHPUT = ("tokens_per_second", "tokens_per_second_per_device", "peak_memory_bytes")
GROUPS = (
    *("recipe", "data.kind", "model.name", "model.position.kind", "model.attention.kind"),
    *("training.max_length", "optimizer.learning_rate"),
)
"""Config keys that tell configurations apart: runs with the same are averaged."""
TITLE = "RoFormer reproduction"
ABOUT = """Runs of this project, averaged over seeds and whatever else is not told apart here: filter
them before reading a difference. Bars of different data, test sets or signatures are not comparable, nor is
the throughput of different machines. None of these numbers has the scale of the paper's tables."""


def sections() -> Iterator[tuple[str, list[Any]]]:
    """Yield pipelines with recorded runs and panels of the metrics that those runs have."""
    recorded = read_runs([RECORDS])
    for name in registry.pipelines():
        runs, metrics = recorded.where(recorded.runs["pipeline"] == name)
        counts = metrics.groupby(["study", "run", "metric"]).size().groupby("metric").max()
        scores = sorted(metric for metric in counts.index if not NO_SCORES.fullmatch(metric))
        scores.sort(key=lambda metric: metric not in set(runs["headline"]))
        lines = [metric for metric in scores if metric.startswith("valid/") and counts[metric] > 1]
        charts = [(metric, axis) for metric in (*lines, "train/loss") for axis in UNITS]
        if scores:
            yield name, panels([*charts, *((score, "") for score in scores if score not in lines)])
    yield "throughput", panels([(f"perf/{name}", STEPS) for name in THROUGHPUT])


def panels(charts: list[tuple[str, str]]) -> list[Any]:
    """Return lines of metrics over an axis, or bars of their last values without one; two in a row."""
    found: list[Any] = []
    for place, (metric, axis) in enumerate(charts):
        layout = reports.Layout(x=place % 2 * 12, y=place // 2 * 8, w=12, h=8)
        shared = {"layout": layout, "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
        if axis:
            titles = {"title": f"{metric} by {UNITS[axis]}", "title_x": UNITS[axis]}
            found.append(
                reports.LinePlot(x=axis, y=[metric], max_runs_to_show=20, **titles, **shared)
            )
        else:
            found.append(
                reports.BarPlot(metrics=[metric], title=metric, max_runs_to_show=20, **shared)
            )
    return found


def build(entity: str, project: str, *, online: bool) -> tuple[Any, workspaces.Workspace]:
    """Return report and workspace, not saved; offline its runs are of the project it is saved to."""
    where: dict[str, Any] = {"entity": entity, "project": project}
    blocks, parts = [reports.P(ABOUT), reports.TableOfContents()], []
    for name, charts in sections():
        runset = reports.Runset(
            **(where if online else {}),
            name=name,
            groupby=[f"config.{key}" for key in GROUPS],
            filters=[] if name == "throughput" else [workspaces.Metric("JobType") == name],
        )
        blocks += [reports.H1(name), reports.PanelGrid(runsets=[runset], panels=charts)]
        parts.append(workspaces.Section(name=name, panels=charts, is_open=True))
    return reports.Report(**where, title=TITLE, blocks=blocks, width="fluid"), workspaces.Workspace(
        **where,
        name=TITLE,
        sections=parts,
        settings=workspaces.WorkspaceSettings(x_axis=STEPS, max_runs=20),
        runset_settings=workspaces.RunsetSettings(groupby=list(map(workspaces.Config, GROUPS))),
    )


def spec(entity: str, project: str) -> dict[str, Any]:
    """Return what would be saved, as plain data; needs neither a network nor an account."""
    shown: dict[str, Any] = {"mode": "json", "by_alias": True, "exclude_none": True}
    report, workspace = (
        one._to_model().spec.model_dump(**shown) for one in build(entity, project, online=False)
    )
    return {"project": f"{entity}/{project}", "workspace": workspace, "report": report}


def save(entity: str, project: str, *, draft: bool) -> None:
    """Save both to wandb and print where they are."""
    if not wandb.login(prompt=False):
        raise wandb.errors.UsageError("no key")
    report, workspace = build(entity, project, online=True)
    report.save(draft=draft)  # first: it looks the project up, before anything is written
    workspace.save()
    print(f"report{' (draft)' if draft else ''}: {report.url}\nworkspace: {workspace.url}")


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("project", metavar="ENTITY/PROJECT", help="where the runs are")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--draft", action="store_true", help="a report for you alone; the default")
    how.add_argument("--publish", action="store_true", help="one that the project's readers see")
    how.add_argument("--print", "--dry-run", action="store_true", help="print both, save nothing")
    arguments = parser.parse_args()
    entity, _, project = arguments.project.partition("/")
    if not entity or not project or "/" in project:
        stop(f"{arguments.project} is no ENTITY/PROJECT: give both, as in your-name/roformer")
    if arguments.print:
        print(json.dumps(spec(entity, project), indent=1))
        return
    try:
        saving = ThreadPoolExecutor(1).submit(save, entity, project, draft=not arguments.publish)
        saving.result(PATIENCE)
    except wandb.errors.UsageError as error:
        stop(f"wandb has no login ({one_line(str(error))}): run wandb login, then this again")
    except TimeoutError:
        stop(f"wandb did not answer in {PATIENCE:.0f} s: is there a network? --print needs none")
    except Exception as error:  # the types for no network and a refused key change with versions
        if "not found" in str(error):
            why = f"wandb has no project {entity}/{project} that this login may see: check the name"
            stop(f"{why}, or upload runs first ({SYNC})")
        why = f"{type(error).__name__}: {one_line(str(error))[:200]}"
        advice = "check the network and wandb login --relogin; --print needs neither"
        stop(f"wandb could not be reached or refused ({why}): {advice}")
    print(f"Runs that were logged offline are not in it until they are uploaded: {SYNC}")


def stop(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr, flush=True)
    os._exit(2)  # at a usual exit wandb waits for its service, which may be what does not answer


if __name__ == "__main__":
    main()
