"""The keys of a plan: those of its training, and the devices that it is planned for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt

from roformer.config.lm import CausalLMConfig, CharLMConfig
from roformer.config.schema import PretrainConfig
from roformer.config.stages import StagesConfig
from roformer.config.typed import schema
from roformer.config.wmt import WmtConfig


@schema
class Devices:
    """Number of devices, and how well they are used."""

    devices: PositiveInt = 1
    utilisation: Annotated[float, Field(gt=0.0, le=1.0)] = 0.4
    """Share of the peak that the training is assumed to reach (MFU)."""


@schema
class PretrainPlan(Devices, PretrainConfig):
    """Plan of `make pretrain`."""


@schema
class StagesPlan(Devices, StagesConfig):
    """Plan of `make stages`."""


@schema
class WmtPlan(Devices, WmtConfig):
    """Plan of `make wmt`."""


@schema
class CharLMPlan(Devices, CharLMConfig):
    """Plan of `make charlm`."""


@schema
class CausalLMPlan(Devices, CausalLMConfig):
    """Plan of `make clm`."""
