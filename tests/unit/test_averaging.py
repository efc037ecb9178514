"""The mean of checkpoints: of what was learnt, not of what was drawn."""

import torch

from roformer.training import averaging
from roformer.training.tensors import save_tensors


def test_random_vectors_are_those_of_the_last_checkpoint(tmp_path, monkeypatch):
    """Their mean would be shorter than any draw, and no longer orthogonal."""
    monkeypatch.setattr(averaging.checkpoint, "damage", lambda path: None)
    monkeypatch.setattr(averaging.checkpoint, "describe", lambda path: {})
    paths = [tmp_path / str(n) for n in range(3)]
    for n, path in enumerate(paths):
        path.mkdir()
        vectors = torch.randn(4, 2, generator=torch.Generator().manual_seed(n))
        tensors = {"weight": torch.full((2,), float(n)), "a.feature_map.vectors": vectors}
        save_tensors(tensors, path / averaging.checkpoint.MODEL)
    found = averaging.average(paths)
    assert found["weight"].tolist() == [1.0, 1.0]
    torch.testing.assert_close(found["a.feature_map.vectors"], vectors)
