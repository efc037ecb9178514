"""Start the runs of a study, as its study.yaml names them: `python scripts/sweep.py experiments/convergence`.

Finished runs are kept and stopped ones go on, so the same command ends what was begun. What a run prints
goes to a file. Overrides after the study go to every run: `tracker=none runtime.threads=1`.
"""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from roformer.config.build import build
from roformer.config.composing import compose
from roformer.config.schema import RuntimeConfig
from roformer.errors import DIVERGED
from roformer.extensions import VARIABLE
from roformer.pipelines import registry
from roformer.pipelines.grid import command
from roformer.report.runs import RecordError
from roformer.report.studies import Study, read_study
from roformer.script import QUIET, Arguments, at_least, script

ROOT = Path(__file__).resolve().parents[1]
Command = tuple[str, list[str]]
"""A configuration, and the words of a command line with its seeds."""


def commands_of(study: Study, names: list[str], seeds: Sequence[int] = ()) -> list[Command]:
    """Return the commands of a study's configurations and seeds, all of them if none is named.

    Raises:
        RecordError: the study has no runs, or no such configuration, or no run with these seeds.
    """
    known = list(study.configurations)
    if not known:
        raise RecordError(f"{study.folder} has no runs of its own: its PLAN.md says what it reads")
    if unknown := sorted(set(names) - set(known)):
        choices = ", ".join(known)
        raise RecordError(
            f"{study.folder} has no configuration {unknown[0]}: choose one of {choices}"
        )
    found = [one for one in study.commands(seeds) if one[0] in (names or known)]
    if not found:
        raise RecordError(f"{study.folder} has no run of seed {seeds[0]} there: see --dry-run")
    return found


def sweep(commands: list[Command], jobs: int, logs: Path, *, quiet: bool = False) -> int:
    """Run the commands, `jobs` at a time, with what they print in files of `logs`; return how many
    diverged, which is recorded.

    Raises:
        SystemExit: some ended otherwise, with the code of the first; the others are done.
    """
    from roformer.pipelines.reproduce import run_stages  # loads torch

    outcomes = {}
    for number, (name, words) in enumerate(commands, 1):
        given = [word for word in words if word.startswith("seed=")]  # the last one counts
        seeds = re.findall(r"\d+", given[-1])
        told = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
        title = f"[{number}/{len(commands)}] {name}, {told}"
        log = logs / f"{number}-{name}-s{','.join(seeds)}.log"
        job = command(title, [sys.executable, *words[1:]], ROOT, log, beside=jobs)
        outcomes[job] = partial(outcome, words)
    ended = run_stages(outcomes, jobs, quiet=quiet, passed=(0, DIVERGED))
    if failed := [one for one in ended if one.code != DIVERGED]:
        raise SystemExit(max(failed[0].code or 0, 1))
    return len(ended)


def outcome(words: list[str]) -> str:
    """Return the headline metrics of the runs of a command."""
    from roformer.pipelines.reproduce import folders_of

    (pipeline,) = (one for one in registry.pipelines().values() if one.command == words[1])
    folders = [ROOT / folder for folder in folders_of(pipeline, words[2:])]
    return registry.outcome(pipeline, folders)


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("study", type=Path, help="folder under experiments/ with a study.yaml")
    parser.add_argument(
        "--configuration",
        action="append",
        default=[],
        help="this one alone; may be repeated",
    )
    parser.add_argument(
        "--seed", type=int, action="append", default=[], help="this one alone; may be repeated"
    )
    parser.add_argument("--jobs", type=at_least(1), default=1, help="runs side by side")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    parser.add_argument("--quiet", action="store_true", help=QUIET)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides for every run")
    arguments = parser.parse_intermixed_args()
    study = read_study(arguments.study)
    found = commands_of(study, arguments.configuration, arguments.seed)
    commands = [(name, [*words, *arguments.overrides]) for name, words in found]
    if arguments.dry_run:
        print("\n".join(shlex.join(words) for _, words in commands))
        return
    given = [word for word in commands[0][1] if word.startswith("runtime.runs_dir=")]
    runtime = build(RuntimeConfig, compose("pretrain", given).runtime)
    logs = Path(runtime.runs_dir) / "sweep" / study.folder.resolve().name
    if study.extensions:
        paths = [str(ROOT), os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        os.environ[VARIABLE] = ",".join(study.extensions)
    diverged = sweep(commands, arguments.jobs, ROOT / logs, quiet=arguments.quiet)
    print(f"{len(commands)} commands ended, {diverged} of them diverged; their output: {logs}")
    print(f"record them with: python scripts/record.py {arguments.study} RUN …")


if __name__ == "__main__":
    main()
