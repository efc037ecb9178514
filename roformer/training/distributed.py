"""Several processes: ranks, a lost process, and models sharded over processes (FSDP 2).

With `runtime.fsdp=true`, or a launch config that enables FSDP, accelerate shards weights, gradients and
moments. Results and checkpoints are the same as without sharding, to the order of the sums, and any
number of processes resumes from them, sharded or not. FSDP gathers each block before its forward and its
backward pass and frees it afterwards, so every rank must make equally many passes. Weights stay in fp32
and autocast casts them, as without sharding.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeGuard

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import Tensor, nn

from roformer.config.schema import RuntimeConfig
from roformer.errors import InputError
from roformer.training.hardware import autocast_of

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

UNIT = "Block"
"""Class of the modules that FSDP gathers one at a time."""
PATIENCE = timedelta(hours=2)
"""Timeout of the wait for the first process while only it scores the test set.

All other exchanges have the backend's own timeout, 10 minutes for NCCL and 30 for gloo."""


# --- ranks, known before any process group exists ------------------------------------------------


def first_process() -> bool:
    """Return whether this is rank 0."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """Return how many processes the run has."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def say(line: str, shown: bool = True) -> None:
    """Print a line if `shown`, on the first process only."""
    if shown and first_process():
        print(line, flush=True)


def check_share(count: int, what: str, key: str = "training.batch_size") -> None:
    """Raise InputError if a step has fewer samples, named by `what`, than there are processes."""
    if count < (processes := process_count()):
        raise InputError(f"{what} less than the {processes} processes: raise {key} or start fewer")


@contextmanager
def waiting_for_first(accelerator: Accelerator) -> Iterator[None]:
    """Keep the other processes at the end of a block in which only the first one works."""
    if accelerator.num_processes == 1:
        yield
        return
    patient = torch.distributed.new_group(timeout=PATIENCE)
    yield
    on_gpu = accelerator.device.type == "cuda"
    devices = [accelerator.local_process_index] if on_gpu else None
    torch.distributed.barrier(patient, device_ids=devices)
    torch.distributed.destroy_process_group(patient)


def leave_process_group() -> None:
    """End the communication between processes, if any, at the end of the script."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def lost_process(error: RuntimeError) -> bool:
    """Return whether an exchange between processes failed because one of them is gone.

    NCCL and the store raise their own types; gloo's errors are known only by their text.
    """
    known = isinstance(error, torch.distributed.DistError)
    return known or any(words in str(error) for words in ("gloo", "by peer", "Broken pipe"))


# --- sharding ------------------------------------------------------------------------------------


def open_accelerator(runtime: RuntimeConfig, precision: str, model: nn.Module) -> Accelerator:
    """Return the accelerator for a model, sharded if config or `accelerate launch` ask for it."""
    # This process may have trained before, as the pre-training of a fine-tuning: in another precision, and
    # with a model in a reference cycle, which stays on the device until it is collected.
    AcceleratorState._reset_state()
    gc.collect()
    torch.backends.cuda.matmul.allow_tf32 = runtime.tf32
    cpu = runtime.device == "cpu"
    launched = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if not (runtime.fsdp or launched):
        # fp16's loss scaler is accelerate's; bf16 is `cast_like_autocast`'s.
        half = "fp16" if precision == "fp16" else "no"
        return Accelerator(cpu=cpu, mixed_precision=half)
    if precision == "fp16":
        raise InputError("runtime.fsdp cannot train in fp16: choose training.precision=bf16")
    if process_count() < 2:
        raise InputError("runtime.fsdp shares one model among processes: start 2 or more")
    if numbers := [name for name, weight in model.named_parameters() if not weight.ndim]:
        raise InputError(
            f"runtime.fsdp cannot shard single numbers, as {numbers[0]}: leave runtime.fsdp out, or "
            "choose another model/position"
        )
    # The warning is about losses changed in place, which ours are not.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    has_units = any(type(module).__name__ == UNIT for module in model.modules())
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=True,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=[UNIT] if has_units else [],
        cpu_ram_efficient_loading=False,
        state_dict_type="FULL_STATE_DICT",
    )
    accelerator = Accelerator(cpu=cpu, mixed_precision="no", fsdp_plugin=plugin)
    if accelerator.distributed_type == DistributedType.MULTI_CPU:  # accelerate shards only on GPUs
        for state in (accelerator.state, PartialState()):
            state.distributed_type = DistributedType.FSDP
        accelerator.state.fsdp_plugin = plugin
    return accelerator


def is_sharded(accelerator: Accelerator) -> bool:
    """Return whether this accelerator shards the models that it prepares."""
    return bool(accelerator.distributed_type == DistributedType.FSDP)


def cast_like_autocast(model: nn.Module, device: torch.device, precision: str) -> None:
    """Run the forward pass under autocast in bf16; another precision is left to accelerate.

    The outputs stay in bf16: accelerate would widen them, the largest tensors of a small model.
    """
    if precision == "bf16":
        model.forward = autocast_of(device, precision)(model.forward)


def is_shard(tensor: Tensor) -> TypeGuard[DTensor]:
    """Return whether a tensor is a DTensor, whose import takes 0.6 s: only a sharded run needs it."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor gathered from all processes; all of them must call it."""
    return tensor.full_tensor() if is_shard(tensor) else tensor


def kept_by_first(tensor: Tensor) -> Tensor:
    """Return a tensor; a sharded one is gathered on the CPU of the first process, and empty elsewhere.

    All processes must call it.
    """
    if not is_shard(tensor):
        return tensor
    full = tensor.full_tensor()
    return full.cpu() if first_process() else full.new_empty(0)


def cut_like(tensor: Tensor, parameter: nn.Parameter) -> Tensor:
    """Return a whole moment on the device of its parameter, sharded like it."""
    tensor = tensor.to(parameter.device)
    if not is_shard(parameter) or tensor.shape != parameter.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Every process has read the whole tensor, so each cuts its own part without an exchange.
    mesh, placements = parameter.device_mesh, parameter.placements
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Keep the weights of a sharded model whole, so that ranks may make different numbers of passes."""
    from torch.distributed.fsdp import FSDPModule

    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for unit in units:
        unit.set_reshard_after_forward(False, recurse=False)
        unit.unshard()
    try:
        yield
    finally:
        for unit in units:
            unit.reshard()
            # accelerate reshards only blocks between the forward and the backward pass.
            unit.set_reshard_after_forward(UNIT in type(unit).__name__, recurse=False)
