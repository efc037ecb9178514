"""Make one update of a run again and show its batch: `python scripts/replay_batch.py runs/pretrain/… 1234`.

From the newest checkpoint before that update, in memory: nothing is written. For the loss spikes of
`spikes.jsonl`, and for the step that a diverged run names.
"""

import argparse
from pathlib import Path

from roformer.cli import one_line_errors
from roformer.pipelines.replay import replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("step", type=int, help="the update, from 1")
    parser.add_argument("--top", type=int, default=10, help="samples to show, the worst first")
    parser.add_argument("--width", type=int, default=100, help="characters of each text")
    arguments = parser.parse_args()
    with one_line_errors():
        found = replay(arguments.run, arguments.step)
        print(
            f"step {found.step}, replayed from step {found.began}: loss {found.loss:.4f}, gradient "
            f"norm {found.grad_norm:.4f}, {len(found.samples)} samples"
        )
        print("loss\ttargets\trow\ttext")
        for row, targets, loss, text in found.samples[: arguments.top]:
            print(f"{loss:.4f}\t{targets}\t{row}\t{' '.join(text.split())[: arguments.width]}")


if __name__ == "__main__":
    main()
