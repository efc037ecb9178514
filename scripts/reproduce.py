"""Reproduce the paper at the scale of this machine: `python scripts/reproduce.py recipe=mini`.

Pre-trains RoFormer and BERT, fine-tunes both on GLUE, trains RoFormer and the Transformer to
translate, and reports. `--all` adds the rest of the paper: Performer and causal language models, with
and without rotary positions, pre-training in stages and long Chinese documents. Each stage is a command
whose lines go to a file; what is finished is kept, so the same command resumes where it was
stopped. Overrides other than `recipe=` go to every stage: `tracker=none seed=1`.
"""

import shlex
import sys

from roformer.pipelines.reproduce import reproduce
from roformer.script import QUIET, Arguments, at_least, script


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("--launcher", default=sys.executable, help="what starts a script")
    parser.add_argument(
        "--jobs", type=at_least(1), help="stages side by side; default: 2 on a CPU, else 1"
    )
    parser.add_argument("--all", action="store_true", help="the whole paper, not its first half")
    parser.add_argument("--quiet", action="store_true", help=QUIET)
    parser.add_argument("overrides", nargs="*", help="recipe=…, and Hydra overrides for all stages")
    arguments = parser.parse_intermixed_args()
    launcher = shlex.split(arguments.launcher)
    reproduce(
        arguments.overrides,
        launcher,
        arguments.jobs,
        everything=arguments.all,
        quiet=arguments.quiet,
    )


if __name__ == "__main__":
    main()
