"""A run's own folder: what a kill or a disk may leave of it."""

import pytest

from roformer.errors import InputError
from roformer.training.records import RunFolder, append, read_metrics


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"[]", b"{", b'{"a": NaN}', b"\xff", b"[" * 10**5]
)
def test_a_damaged_file_is_one_line(tmp_path, content):
    for name, read in (("summary", "summary"), ("env", "environment")):
        (tmp_path / f"{name}.json").write_bytes(content)
        with pytest.raises(InputError, match=f"{name}.json is damaged") as refusal:
            getattr(RunFolder(tmp_path), read)()
        assert "\n" not in str(refusal.value)


def test_metrics_are_rewound_to_a_step_without_a_torn_last_line(tmp_path):
    folder = RunFolder(tmp_path)
    for step in (1, 2, 3):
        append(folder.metrics, {"step": step, "valid/loss": float("nan")})
    with folder.metrics.open("a") as file:
        file.write('{"step": 4, "val')
    folder.rewind(2)
    folder.amend({"test/loss": 2.0})
    rows = [{"step": 1, "valid/loss": None}, {"step": 2, "valid/loss": None, "test/loss": 2.0}]
    assert read_metrics(folder.metrics) == rows
    folder.metrics.write_bytes(b'{"step": 1}\n\0\0\0\n{"step": 2}\n')
    with pytest.raises(InputError, match=r"metrics.jsonl is damaged .line 2, "):
        folder.rewind(2)
