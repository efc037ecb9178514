"""RoFormer (arXiv 2104.09864): rotary position embedding, its models and their baselines."""

from roformer.nn.rotary import RotaryEmbedding, apply_rotary, decay_bound, rotary_angles

__all__ = ["RotaryEmbedding", "apply_rotary", "decay_bound", "rotary_angles"]
