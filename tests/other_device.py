"""A second device for machines without one: tensors that say `meta` and hold their values on the CPU.

Operations that fail on a GPU fail here too: an operation on tensors of both devices, and reading a
tensor's memory without copying it to the host. So trainings and searches run whole, through the
code that other devices than a CPU get, and with the CPU's numbers. Torch's own tools do not
suffice. The meta device has no values, but a search and a loss's `nonzero` need them.
FakeTensorMode has no values either, and its `cuda` has no backward pass where torch is built
without it.
"""

import contextlib
import warnings
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

OTHER = torch.device("meta")
COPY = torch.ops.aten.copy_.default
BOTH = {COPY, torch.ops.aten._to_copy.default}
"""Operations that take tensors of both devices."""
AT_ONCE = {
    torch.ops.aten._conj.default: torch.ops.aten.conj_physical.default,
    torch.ops.aten._neg_view.default: torch.ops.aten.neg.default,
}
"""Operations that torch only marks on a tensor, which a subclass loses → ones that compute them."""
OF_THE_HOST = {
    torch.ops.aten._local_scalar_dense.default,  # item, bool, float and int
    torch.ops.aten.equal.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
}
"""Operations whose result, or its shape, is of the host."""
READ = []
"""Operations that brought values of the other device to the host, for which a GPU makes it wait."""
FROM_VALUES = {torch.tensor, torch.Tensor.new_tensor}
"""Functions that leave the values out where the device is `meta`."""


@contextlib.contextmanager
def another_device():
    """Meanwhile `device=OTHER` makes a tensor of the other device, and `.to(OTHER)` moves one there.

    The context is the list of the operations that brought values to the host.
    """
    READ.clear()
    autocast = torch.autocast

    def known_devices(device, *settings, **named):  # torch has no autocast for `meta`
        if device == OTHER.type:
            return contextlib.nullcontext()
        return autocast(device, *settings, **named)

    with (
        warnings.catch_warnings(),
        mock.patch.object(torch, "autocast", known_devices),
        _Operations(),
        _Values(),
    ):
        # Weights are loaded into them, whatever torch thinks of `meta`.
        warnings.filterwarnings("ignore", message=".*to a meta parameter")
        yield READ


class There(torch.Tensor):
    """A tensor of the other device."""

    @staticmethod
    def __new__(cls, values):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=OTHER,
        )

    def __init__(self, values):
        self.values = values

    def tolist(self):  # torch does not support it for subclasses
        READ.append("tolist")
        return self.values.tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _call(function, args, kwargs or {})


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _call(function, args, kwargs or {})


class _Values(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if function is torch.Tensor.new_tensor and device is None:
            device = args[0].device
        if function in FROM_VALUES and device is not None and torch.device(device) == OTHER:
            return torch.tensor(args[-1], **{**kwargs, "device": "cpu"}).to(OTHER)
        return function(*args, **kwargs)


def _call(function, args, kwargs):
    """Call an operation as a machine with two devices does."""
    if function is torch.ops.aten._fused_sdp_choice.default:
        return 0  # the kernel of no device: products and a softmax
    function = AT_ONCE.get(function, function)
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    there = [tuple(t.shape) for t in tensors if isinstance(t, There)]
    here = [tuple(t.shape) for t in tensors if not isinstance(t, There) and t.ndim]
    if there and here and function not in BOTH:
        raise RuntimeError(f"{function}: shapes {there} are on the device, {here} on the host")
    moved = kwargs.get("device")
    stays = isinstance(args[0], There) if function is COPY else bool(there)
    goes_there = stays if moved is None else torch.device(moved) == OTHER
    values, named = tree_map_only(There, lambda tensor: tensor.values, (args, kwargs))
    found = function(*values, **(named if moved is None else {**named, "device": "cpu"}))
    if there and (not goes_there or function in OF_THE_HOST):
        READ.append(str(function))
    if not goes_there:
        return found
    found = tree_map_only(torch.Tensor, There, found)
    return return_and_correct_aliasing(function, args, kwargs, found) if there else found
