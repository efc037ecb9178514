"""Start the runs of a study, as its study.yaml names them: `python scripts/sweep.py experiments/convergence`.

Finished runs are kept and stopped ones go on, so the same command ends what was begun. Overrides after
the study go to every run: `tracker=none runtime.threads=1`.
"""

import argparse
import shlex
import signal
import sys
from pathlib import Path

from roformer.cli import CONF, DIVERGED, leave_on_signal
from roformer.commands import Command, Running, run_commands
from roformer.report.runs import RecordError
from roformer.report.studies import Study, read_study
from roformer.stdout import outlive_reader


def commands_of(study: Study, arms: list[str]) -> list[list[str]]:
    """Return the command lines of the arms, all of them if none is named.

    Raises:
        RecordError: the study has no runs, or no such arm.
    """
    known = [arm.name for arm in study.arms]
    if not known:
        raise RecordError(f"{study.folder} has no runs of its own: its PLAN.md says what it reads")
    if unknown := sorted(set(arms) - set(known)):
        raise RecordError(f"{study.folder} has no arm {unknown[0]}: choose of {', '.join(known)}")
    return [words for arm, _, words in study.commands() if arm.name in (arms or known)]


def sweep(commands: list[list[str]], jobs: int) -> int:
    """Run the commands, `jobs` at a time; return how many diverged, which is recorded.

    Raises:
        SystemExit: one ended otherwise; those beside it are told to stop and save.
    """
    diverged = 0

    def ended(one: Running) -> None:
        nonlocal diverged
        code = one.process.returncode
        if code not in (0, DIVERGED):
            print(f"error: {one.command.title} ended with code {code}", file=sys.stderr)
            raise SystemExit(code if code > 0 else 1)
        diverged += code == DIVERGED

    run_commands(
        [
            Command(f"[{number}/{len(commands)}] {shlex.join(words)}", (sys.executable, *words[1:]))
            for number, words in enumerate(commands, 1)
        ],
        jobs,
        CONF.parent,
        started=lambda command: print(command.title, flush=True),
        ended=ended,
    )
    return diverged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="folder under experiments/ with a study.yaml")
    parser.add_argument(
        "--arm", action="append", default=[], help="this arm alone; may be repeated"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides for every run")
    arguments = parser.parse_intermixed_args()
    signal.signal(signal.SIGTERM, leave_on_signal)
    try:
        commands = commands_of(read_study(arguments.study), arguments.arm)
    except RecordError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    commands = [[*words, *arguments.overrides] for words in commands]
    if arguments.dry_run:
        print("\n".join(shlex.join(words) for words in commands))
        return
    diverged = sweep(commands, max(1, arguments.jobs))
    print(f"{len(commands)} commands ended, {diverged} of them diverged; record them with")
    print(f"python scripts/record.py {arguments.study} RUN …")


if __name__ == "__main__":
    outlive_reader()
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
