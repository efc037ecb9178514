"""The mean of checkpoints: of what was learnt, not of what was drawn."""

import pytest
import torch

from roformer.errors import InputError
from roformer.training import averaging, checkpoint
from scripts.average import check_output


def test_random_vectors_are_those_of_the_last_checkpoint(tmp_path):
    """Their mean would be shorter than any draw, and no longer orthogonal."""
    paths = [tmp_path / str(n) for n in range(3)]
    for n, path in enumerate(paths):
        vectors = torch.randn(4, 2, generator=torch.Generator().manual_seed(n))
        tensors = {"weight": torch.full((2,), float(n)), "a.feature_map.vectors": vectors}
        checkpoint.write(path, {checkpoint.MODEL: tensors}, {checkpoint.DESCRIPTION: {}})
    found = checkpoint.load_tensors(
        averaging.save_average(paths, tmp_path / "mean") / "model.safetensors"
    )
    assert found["weight"].tolist() == [1.0, 1.0]
    torch.testing.assert_close(found["a.feature_map.vectors"], vectors)
    assert checkpoint.damage(tmp_path / "mean") is None


@pytest.mark.parametrize("account", ["{", "{}"])
def test_a_damaged_account_is_no_average_of_the_run(tmp_path, account):
    (folder := tmp_path / "averaged").mkdir()
    (folder / "average.json").write_text(account)
    with pytest.raises(InputError, match="exists and is no mean of these"):
        check_output(folder, [tmp_path / "step_00000020"])
