"""Start the runs of a study, as its study.yaml names them: `python scripts/sweep.py experiments/convergence`.

Finished runs are kept and stopped ones go on, so the same command ends what was begun. Overrides after
the study go to every run: `tracker=none runtime.threads=1`.
"""

import shlex
import sys
from pathlib import Path

from roformer.errors import DIVERGED
from roformer.pipelines.grid import Started, command, run_jobs
from roformer.report.runs import RecordError
from roformer.report.studies import Study, read_study
from roformer.script import Arguments, at_least, script

ROOT = Path(__file__).resolve().parents[1]


def commands_of(study: Study, names: list[str], seeds: list[int] | None = None) -> list[list[str]]:
    """Return the command lines of a study's configurations and seeds, all of them if none is named.

    Raises:
        RecordError: the study has no runs, or no such configuration, or no run with these seeds alone.
    """
    known = list(study.configurations)
    if not known:
        raise RecordError(f"{study.folder} has no runs of its own: its PLAN.md says what it reads")
    if unknown := sorted(set(names) - set(known)):
        choices = ", ".join(known)
        raise RecordError(f"{study.folder} has no configuration {unknown[0]}: choose of {choices}")
    found = [words for name, words in study.commands() if name in (names or known)]
    if seeds and not (
        found := [words for words in found if words[-1] in map("seed={}".format, seeds)]
    ):
        raise RecordError(f"{study.folder} has no command of seed {seeds[0]} alone: see --dry-run")
    return found


def sweep(commands: list[list[str]], jobs: int) -> int:
    """Run the commands, `jobs` at a time; return how many diverged, which is recorded.

    Raises:
        SystemExit: some ended otherwise, with the code of the first; the others are done.
    """
    ended: list[Started] = []
    runs = [
        command(f"[{n}/{len(commands)}] {shlex.join(words)}", [sys.executable, *words[1:]], ROOT)
        for n, words in enumerate(commands, 1)
    ]
    run_jobs(runs, jobs, ended.append, starts=lambda job: print(job.title, flush=True))
    failed = [one for one in ended if one.code not in (0, DIVERGED)]
    for one in failed:
        print(f"error: {one.job.title} ended with code {one.code}", file=sys.stderr)
    if failed:
        raise SystemExit(max(failed[0].code or 0, 1))
    return sum(one.code == DIVERGED for one in ended)


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
    parser.add_argument("overrides", nargs="*", help="Hydra overrides for every run")
    arguments = parser.parse_intermixed_args()
    found = commands_of(read_study(arguments.study), arguments.configuration, arguments.seed)
    commands = [[*words, *arguments.overrides] for words in found]
    if arguments.dry_run:
        print("\n".join(shlex.join(words) for words in commands))
        return
    diverged = sweep(commands, arguments.jobs)
    print(f"{len(commands)} commands ended, {diverged} of them diverged; record them with")
    print(f"python scripts/record.py {arguments.study} RUN …")


if __name__ == "__main__":
    main()
