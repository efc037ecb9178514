"""Pre-training runs opened for measurements."""

import json
import shutil

import pytest

from roformer.analysis.pretrained import open_pretrained
from roformer.errors import InputError


def test_sequences_are_validation_blocks_without_masks(run):
    opened = open_pretrained(run)
    ids = opened.validation_sequences(4, 32)
    tokenizer, stream = opened.text.tokenizer, opened.text.valid
    assert ids.shape == (4, 32)
    assert (ids[:, 0] == tokenizer.cls_id).all() and (ids[:, -1] == tokenizer.sep_id).all()
    blocks = [stream[n * 30 : (n + 1) * 30].tolist() for n in range(len(stream) // 30)]
    rows = ids[:, 1:-1].tolist()
    assert all(row in blocks for row in rows) and len({tuple(row) for row in rows}) == 4


def edited(run, target, name, old, new):
    """Return a copy of a run with a piece of a file replaced."""
    file = shutil.copytree(run, target, symlinks=True) / name
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new))
    return target


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b": cross", b": isolate", "documents=isolate"),
        (b"kind: softmax", b"kind: elu", "has elu attention, which has no scores"),
    ],
)
def test_a_run_that_cannot_be_opened_is_one_line(run, tmp_path, old, new, message):
    with pytest.raises(InputError, match=message) as refusal:
        open_pretrained(edited(run, tmp_path / "run", "config.yaml", old, new))
    assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match="is no pre-training run"):
        open_pretrained(tmp_path)
    data = json.loads((run / "env.json").read_text())["data"].encode()
    with pytest.raises(InputError, match="was trained on other text"):
        open_pretrained(edited(run, tmp_path / "o", "env.json", data, b"0" * 64))
