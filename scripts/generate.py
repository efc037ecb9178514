"""Continue a text: `python scripts/generate.py runs/clm/roformer-… --prompt "The function returns"`.

The prompt is --prompt, or stdin where that is no terminal. The continuation is printed as it is drawn;
the same seed gives the same text.
"""

import sys

from roformer.data.files import decoded
from roformer.errors import InputError
from roformer.evaluation.sampling import Sampling
from roformer.inference.generate import ByteCodec, Generator, load_generator
from roformer.script import Arguments, script
from roformer.training.process import tune_process


def read_prompt(generator: Generator) -> str:
    """Return stdin: its bytes as they are for a model of bytes, else its lines."""
    if isinstance(generator.codec, ByteCodec):
        return sys.stdin.buffer.read().decode(errors="surrogateescape")
    return "\n".join(line for _, line in decoded(sys.stdin.buffer, "stdin"))


@script(prints=True)
def main() -> None:
    parser = Arguments(__doc__, device=True, threads=True)
    parser.add_argument(
        "run", help="a clm or charlm run (folder or id), or the folder of a checkpoint"
    )
    parser.add_argument("--prompt", help="text to continue; default: stdin")
    parser.add_argument("--max-tokens", type=int, default=200, help="tokens, or bytes of charlm")
    parser.add_argument("--temperature", type=float, default=1.0, help="0 is greedy")
    parser.add_argument("--top-k", type=int, help="draw from the k most probable tokens")
    parser.add_argument("--top-p", type=float, help="draw from the most probable ones up to p")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not 0 <= arguments.seed < 2**63:
        raise InputError(f"--seed {arguments.seed}: give at least 0 and less than 2^63")
    sampling = Sampling(arguments.temperature, arguments.top_k, arguments.top_p)
    tune_process(threads=arguments.threads)
    generator = load_generator(arguments.run, device=arguments.device)
    prompt = arguments.prompt
    if prompt is None:
        prompt = "" if sys.stdin.isatty() else read_prompt(generator)
    most, seed = arguments.max_tokens, arguments.seed
    pieces = generator.generate(prompt, sampling, max_tokens=most, seed=seed)
    if not generator.trained_on(prompt, most):
        print(f"beyond the {generator.length} tokens of the training's texts", file=sys.stderr)
    print(generator.codec.show(prompt), end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
