"""Build a wandb workspace and report of the project's runs: `python scripts/wandb_report.py ENTITY/PROJECT`.

Both have a section for each pipeline with recorded runs, curves of what is validated and bars of scores, and
one of throughput. Runs that differ only in the seed are averaged, with a band of one standard deviation.
Each call makes new ones. `wandb sync runs/*/*/wandb/offline-run-*` uploads runs that were logged offline.
"""

import json
import re
from pathlib import Path
from typing import Any

import wandb
import wandb_workspaces.reports.v2
import wandb_workspaces.workspaces as workspaces

from roformer import registry
from roformer.errors import InputError, one_line
from roformer.report.runs import read_runs
from roformer.script import Arguments, script

reports: Any = wandb_workspaces.reports.v2  # exports its names in a way that mypy does not follow
RECORDS = Path(__file__).resolve().parents[1] / "experiments"
SYNC = "wandb sync runs/*/*/wandb/offline-run-*"
AXES = {"global_step": "steps", "data/tokens": "tokens"}
NO_SCORES = re.compile(r"(train|perf|data)/.*|.*(unigram|constant|_single|_at_\d).*")
THROUGHPUT = ("tokens_per_second", "tokens_per_second_per_device", "peak_memory_bytes")
GROUPS = (
    *("recipe", "data.kind", "model.name", "model.position.kind", "model.attention.kind"),
    *("training.max_length", "optimizer.learning_rate"),
)
"""Config keys that distinguish configurations: runs with the same are averaged."""
TITLE = "RoFormer reproduction"
ABOUT = """Runs of this project, averaged over seeds and over all keys that do not distinguish them here:
filter them before reading a difference. Bars of different data, test sets or signatures are not comparable,
nor is the throughput of different machines. None of these numbers has the scale of the paper's tables."""


def charts() -> dict[str, list[tuple[str, str]]]:
    """Return section → metrics of the recorded runs and their axes; a bar has no axis."""
    found, (runs, logged) = {}, read_runs([RECORDS])
    columns = ["study", "run", "pipeline", "headline"]
    logged = logged.merge(runs[columns].reset_index(drop=True))
    for name in registry.pipelines():
        metrics = logged[logged["pipeline"] == name]
        counts = metrics.groupby(["study", "run", "metric"]).size().groupby("metric").max()
        scores = sorted(metric for metric in counts.index if not NO_SCORES.fullmatch(metric))
        scores.sort(key=lambda metric: metric not in set(metrics["headline"]))
        lines = [metric for metric in scores if metric.startswith("valid/") and counts[metric] > 1]
        curves = [(metric, axis) for metric in (*lines, "train/loss") for axis in AXES]
        if scores:
            found[name] = [*curves, *((score, "") for score in scores if score not in lines)]
    return found | {"throughput": [(f"perf/{name}", "global_step") for name in THROUGHPUT]}


def panel(place: int, metric: str, axis: str) -> Any:
    """Return a line over an axis, or a bar of the last value without one; two per row."""
    shared = {
        "layout": reports.Layout(x=place % 2 * 12, y=place // 2 * 8, w=12, h=8),
        "max_runs_to_show": 20,
        "groupby_aggfunc": "mean",
        "groupby_rangefunc": "stddev",
    }
    if not axis:
        return reports.BarPlot(metrics=[metric], title=metric, **shared)
    title = f"{metric} by {AXES[axis]}"
    return reports.LinePlot(x=axis, y=[metric], title=title, title_x=AXES[axis], **shared)


def build(entity: str, project: str, *, online: bool) -> tuple[Any, workspaces.Workspace]:
    """Return report and workspace, not saved; offline its runs are of the project it is saved to."""
    where: dict[str, Any] = {"entity": entity, "project": project}
    blocks, sections = [reports.P(ABOUT), reports.TableOfContents()], []
    for name, listed in charts().items():
        panels = [panel(place, *chart) for place, chart in enumerate(listed)]
        runset = reports.Runset(
            **(where if online else {}),
            name=name,
            groupby=[f"config.{key}" for key in GROUPS],
            filters=[] if name == "throughput" else [workspaces.Metric("JobType") == name],
        )
        blocks += [reports.H1(name), reports.PanelGrid(runsets=[runset], panels=panels)]
        sections.append(workspaces.Section(name=name, panels=panels, is_open=True))
    return reports.Report(**where, title=TITLE, blocks=blocks, width="fluid"), workspaces.Workspace(
        **where,
        name=TITLE,
        sections=sections,
        settings=workspaces.WorkspaceSettings(x_axis="global_step", max_runs=20),
        runset_settings=workspaces.RunsetSettings(groupby=list(map(workspaces.Config, GROUPS))),
    )


def spec(entity: str, project: str) -> dict[str, Any]:
    """Return what would be saved, as plain data; needs neither a network nor an account."""
    shown: dict[str, Any] = {"mode": "json", "by_alias": True, "exclude_none": True}
    both = (one._to_model().spec for one in build(entity, project, online=False))
    report, workspace = (one.model_dump(**shown) for one in both)
    return {"project": f"{entity}/{project}", "workspace": workspace, "report": report}


def save(entity: str, project: str, *, draft: bool) -> None:
    """Save both to wandb and print where they are."""
    if not wandb.login(prompt=False):
        raise wandb.errors.UsageError("no key")
    report, workspace = build(entity, project, online=True)
    report.save(draft=draft)  # first: it looks the project up, before anything is written
    workspace.save()
    print(f"report{' (draft)' if draft else ''}: {report.url}\nworkspace: {workspace.url}")


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("project", metavar="ENTITY/PROJECT", help="where the runs are")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--draft", action="store_true", help="a report for you only; the default")
    how.add_argument("--publish", action="store_true", help="a report for the project's readers")
    how.add_argument("--print", "--dry-run", action="store_true", help="print both, save nothing")
    arguments = parser.parse_args()
    if not re.fullmatch("[^/]+/[^/]+", arguments.project):
        raise InputError(f"{arguments.project} is no ENTITY/PROJECT: give such as me/roformer")
    entity, project = arguments.project.split("/")
    if arguments.print:
        print(json.dumps(spec(entity, project), indent=1))
        return
    try:
        save(entity, project, draft=not arguments.publish)
    except Exception as error:  # the types change with versions of wandb
        raise InputError(
            f"wandb did not save it ({type(error).__name__}: {one_line(str(error))[:200]}): check the "
            "project, the network and wandb login; --print works without them"
        ) from error
    print(f"Runs that were logged offline are not in it until they are uploaded: {SYNC}")


if __name__ == "__main__":
    main()
