"""Make one step of a run again and show its batch: `python scripts/replay_batch.py runs/pretrain/… 1234`.

From the newest checkpoint before that step, in memory: nothing is written. For the loss spikes of
`spikes.jsonl`, and for the step that a diverged run names.
"""

from pathlib import Path

from roformer.analysis.replay import replay
from roformer.inference.names import find
from roformer.script import Arguments, script


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("run", help="a run: folder or id")
    parser.add_argument("step", type=int, help="the step, from 1")
    parser.add_argument("--top", type=int, default=10, help="examples to show, the worst first")
    parser.add_argument("--width", type=int, default=100, help="characters of each text")
    arguments = parser.parse_args()
    found = replay(Path(find(arguments.run)), arguments.step)
    print(
        f"step {found.step}, replayed from step {found.began}: loss {found.loss:.4f}, gradient "
        f"norm {found.grad_norm:.4f}, {len(found.samples)} samples"
    )
    print("loss\ttargets\trow\ttext")
    for row, targets, loss, text in found.samples[: arguments.top]:
        print(f"{loss:.4f}\t{targets}\t{row}\t{' '.join(text.split())[: arguments.width]}")


if __name__ == "__main__":
    main()
