"""The files for `accelerate launch --config_file` are what accelerate reads, to the last key."""

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from accelerate.utils.launch import prepare_multi_gpu_env
from torch.distributed.fsdp import StateDictType

from roformer.models.encoder import MaskedLM
from roformer.models.transformer import Block
from tests.conf.composed import config
from tests.conftest import REPOSITORY

FILES = sorted((REPOSITORY / "examples" / "accelerate").glob("*.yaml"))
KINDS = {"multi_gpu": "MULTI_GPU", "multi_node": "MULTI_GPU", "fsdp": "FSDP"}


def launched(name: str, *words: str):
    """Return what accelerate makes of a file and the words after it: (arguments, environment)."""
    command = [
        "--config_file",
        str(REPOSITORY / "examples" / "accelerate" / f"{name}.yaml"),
        *words,
        "train.py",
    ]
    arguments = launch_command_parser().parse_args(command)
    arguments, _, _ = _validate_launch_command(arguments)
    return arguments, prepare_multi_gpu_env(arguments)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_key_is_one_of_accelerate(path):
    """Accelerate raises on unknown keys, but ignores unknown keys within fsdp_config."""
    read = load_config_from_file(str(path))
    assert read.distributed_type == DistributedType(KINDS[path.stem])
    assert read.mixed_precision == "no" and read.dynamo_config == {}
    known = vars(launch_command_parser().parse_args(["train.py"]))
    assert set(yaml.safe_load(path.read_text()).get("fsdp_config", {})) <= set(known)


def test_several_machines_meet_at_the_first():
    words = ["--machine_rank", "1", "--main_process_ip", "node7", "--num_machines", "4"]
    arguments, environment = launched("multi_node", *words, "--num_processes", "32")
    assert (arguments.nnodes, arguments.nproc_per_node, arguments.node_rank) == ("4", "8", 1)
    assert (arguments.rdzv_backend, arguments.rdzv_endpoint) == ("static", "node7:29500")
    assert environment["ACCELERATE_MIXED_PRECISION"] == "no"


def test_fsdp_shards_every_block_and_saves_whole_weights(monkeypatch):
    _, environment = launched("fsdp")
    for name, value in environment.items():
        if name.startswith("FSDP_"):
            monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2 and plugin.reshard_after_forward is True
    assert plugin.state_dict_type == StateDictType.FULL_STATE_DICT
    with torch.device("meta"):
        model = MaskedLM(config("model/size=tiny").model, 64)
    wrapped = fsdp2_prepare_auto_wrap_policy(plugin, model)
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    assert [module for module in model.modules() if wrapped(module)] == blocks
