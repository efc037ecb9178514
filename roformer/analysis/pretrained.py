"""A pre-training run with its text, for measurements."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypeVar

from roformer.config.build import from_yaml
from roformer.config.schema import PretrainConfig
from roformer.data.text import PreparedText, prepare_text
from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError
from roformer.inference.load import load_model
from roformer.inference.resolve import choose
from roformer.models.encoder import MaskedLM
from roformer.training import checkpoint
from roformer.training.records import RunFolder

C = TypeVar("C")


class Pretrained(NamedTuple):
    """A pre-training run and the text that it was trained on."""

    folder: Path
    config: PretrainConfig
    text: PreparedText

    @property
    def weights(self) -> tuple[Path, str]:
        """The last checkpoint and the checksum of its weights."""
        folder = checkpoint.resolve(self.folder)
        return folder, checkpoint.weights_digest(folder)

    def model(self, device: str) -> MaskedLM:
        """Return the model with its last weights, for evaluation."""
        model = load_model(self.folder, device=device).model
        assert isinstance(model, MaskedLM)
        return model


def read_config(run: Path, cls: type[C]) -> C:
    """Return the config of a run's record."""
    file = run / "config.yaml"
    if not file.is_file():
        raise InputError(f"{run} has no config.yaml: give the folder of a run, runs/…/…")
    try:
        return from_yaml(cls, file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, InputError) as error:
        raise InputError(f"{file} is damaged ({error}): give the folder of another run") from error


def open_pretrained(run: Path, cache_dir: str | None = None) -> Pretrained:
    """Return a run with its text, whose validation part is what the training held out.

    Args:
        run: a folder under runs/pretrain/.
        cache_dir: folder of the prepared text; None: the folder that the run used.
    """
    if not (run / "config.yaml").is_file() or checkpoint.describe(choose(run))["kind"] != "mlm":
        raise InputError(f"{run} is no pre-training run: give a folder under runs/pretrain/")
    config = read_config(run, PretrainConfig)
    attention, runtime = config.model.attention.kind, config.runtime
    if attention != "softmax":
        raise InputError(
            f"{run} has {attention} attention, which has no scores to measure or to scale: give a "
            "run with softmax"
        )
    if config.training.documents == "isolate":
        raise InputError(
            f"{run} was trained with training.documents=isolate, where a token sees and counts only its "
            "own document: give a run with cross"
        )
    folder, workers = cache_dir or runtime.cache_dir, runtime.prepare_workers
    tokenizer = WordPiece.load(run / "tokenizer") if config.init_from else None
    text = prepare_text(config.data, folder, tokenizer=tokenizer, workers=workers, progress=False)
    if text.fingerprint != (begun_on := RunFolder(run).data()):
        raise InputError(
            f"{run} was trained on other text (fingerprint {str(begun_on)[:8]}, now "
            f"{text.fingerprint[:8]}): restore it, so that what was held out still is"
        )
    return Pretrained(run, config, text)
