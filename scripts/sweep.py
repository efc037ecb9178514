"""Start the runs that a study's study.yaml lists: `python scripts/sweep.py experiments/causal_lm`.

Finished runs are kept and stopped ones resume, so the same command completes an interrupted sweep. The
output of a run goes to a file. Overrides after the study are for every run: `tracker=none runtime.threads=1`.
"""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any

from roformer import registry
from roformer.config.build import configuration, plain
from roformer.config.composing import compose
from roformer.errors import DIVERGED, prefixed
from roformer.pipelines.grid import command
from roformer.registry import EXTENSIONS
from roformer.report.runs import RecordError, flattened
from roformer.report.studies import Study, read_study, require_plan
from roformer.script import QUIET, Arguments, at_least, script

ROOT = Path(__file__).resolve().parents[1]
Command = tuple[str, list[str]]
"""A configuration, and the words of a command line with its seeds."""


def commands_of(study: Study, names: list[str], seeds: Sequence[int] = ()) -> list[Command]:
    """Return the commands of a study's configurations and seeds, all of them if no name is given."""
    known = list(study.configurations)
    if not known:
        raise RecordError(f"{study.folder} has no runs of its own: its PLAN.md says what it reads")
    if unknown := sorted(set(names) - set(known)):
        problem = f"{study.folder} has no configuration {unknown[0]}"
        raise RecordError(f"{problem}: choose one of {', '.join(known)}")
    found = [one for one in study.commands(seeds) if one[0] in (names or known)]
    if not found:
        raise RecordError(f"{study.folder} has no run of seed {seeds[0]} there: see --dry-run")
    return found


def check(study: Study, commands: list[Command]) -> None:
    """Compose the config of every configuration: a mistake in one stops the sweep before the first run.

    Two configurations may differ only in what the plan lists. Not compared are commands of several runs, and
    configs that take the settings of weights, since not all weights may exist yet.
    """
    contents: dict[str, dict[str, dict[str, Any]]] = {}
    for name, words in dict(commands).items():
        pipeline = pipeline_of(words)
        with prefixed(f"{study.folder}, configuration {name}: "):
            config = compose(pipeline.name, words[2:])
        if not (pipeline.several or getattr(config, "init_from", None)):
            content = flattened(configuration(type(config), plain(config)))
            contents.setdefault(pipeline.name, {})[name] = content
    planned = tuple(f"{key}." for key in study.differ)
    pairs = chain.from_iterable(combinations(own.items(), 2) for own in contents.values())
    for (name, ours), (other, theirs) in pairs:
        differing = (key for key in ours | theirs if ours.get(key) != theirs.get(key))
        for key in differing:
            if not f"{key}.".startswith(planned):
                raise RecordError(
                    f"{study.folder}: {name} and {other} differ in {key}, which is not under differ: "
                    "make it equal, or add it"
                )


def shown(commands: list[Command], variables: Sequence[str]) -> str:
    """Return the commands as lines for a shell, with the environment variables that they need."""
    here = "" if Path.cwd() == ROOT else f"cd {shlex.quote(str(ROOT))}\n"
    start = ["env", *(f"{name}={os.environ[name]}" for name in variables)] if variables else []
    lines = (shlex.join([*start, sys.executable, *words[1:]]) for _, words in commands)
    return here + "\n".join(lines)


def sweep(commands: list[Command], jobs: int, logs: Path, *, quiet: bool = False) -> int:
    """Run the commands, `jobs` at a time, with their output in files of `logs`; return how many diverged.

    A diverged run is a result and is recorded. After another failure the remaining commands still run,
    and the exit code is the first failure's.
    """
    from roformer.pipelines.reproduce import run_stages  # loads torch

    jobs_of = {}
    for number, (name, words) in enumerate(commands, 1):
        given = [word for word in words if word.startswith("seed=")]  # the last one counts
        seeds = re.findall(r"\d+", given[-1])
        plural = "s" if len(seeds) > 1 else ""
        title = f"[{number}/{len(commands)}] {name}, seed{plural} {', '.join(seeds)}"
        log = logs / f"{number}-{name}-s{','.join(seeds)}.log"
        job = command(title, [sys.executable, *words[1:]], ROOT, log, parallel=jobs)
        jobs_of[job] = partial(outcome, words)
    ended = run_stages(jobs_of, jobs, quiet=quiet, passed=(0, DIVERGED))
    if failed := [one for one in ended if one.code != DIVERGED]:
        raise SystemExit(max(failed[0].code or 0, 1))
    return len(ended)


def outcome(words: list[str]) -> str:
    """Return the headline metrics of the runs of a command."""
    from roformer.pipelines.run import outcome as run_outcome

    pipeline = pipeline_of(words)
    folders = pipeline.folders(compose(pipeline.name, words[2:]))
    return run_outcome(pipeline, [ROOT / folder for folder in folders])


def pipeline_of(words: list[str]) -> registry.Pipeline:
    """Return the pipeline of a command."""
    (pipeline,) = (one for one in registry.pipelines().values() if one.script == words[1])
    return pipeline


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("study", type=Path, help="folder under experiments/ with a study.yaml")
    again = "only this one; may be repeated"
    parser.add_argument("--configuration", action="append", default=[], help=again)
    parser.add_argument("--seed", type=int, action="append", default=[], help=again)
    parser.add_argument("--jobs", type=at_least(1), default=1, help="runs side by side")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    parser.add_argument("--quiet", action="store_true", help=QUIET)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides for every run")
    arguments = parser.parse_intermixed_args()
    study = read_study(arguments.study)
    require_plan(study.folder)
    found = commands_of(study, arguments.configuration, arguments.seed)
    commands = [(name, [*words, *arguments.overrides]) for name, words in found]
    if study.extensions:
        sys.path.insert(0, str(ROOT))
        paths = [str(ROOT), os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        os.environ[EXTENSIONS] = ",".join(study.extensions)
    check(study, commands)
    if arguments.dry_run:
        print(shown(commands, (EXTENSIONS, "PYTHONPATH") if study.extensions else ()))
        return
    given = [word for word in commands[0][1] if word.startswith("runtime.runs_dir=")]
    logs = Path(compose("pretrain", given).runtime.runs_dir) / "sweep" / study.folder.resolve().name
    diverged = sweep(commands, arguments.jobs, ROOT / logs, quiet=arguments.quiet)
    print(f"{len(commands)} commands ended, {diverged} of them diverged; their output: {logs}")
    print(f"record them with: python scripts/record.py {arguments.study} RUN …")


if __name__ == "__main__":
    main()
