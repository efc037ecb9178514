"""The keys of a plan: those of its training, and the devices that it is planned for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt

from roformer.config.lm import CausalLMConfig, CharLMConfig
from roformer.config.schema import PretrainConfig
from roformer.config.stages import StagesConfig
from roformer.config.typed import Config
from roformer.config.wmt import WmtConfig


class Devices(Config):
    """Number of devices, and how well they are used."""

    devices: PositiveInt = 1
    utilisation: Annotated[float, Field(gt=0.0, le=1.0)] = 0.4
    """Share of the peak that the training is assumed to reach (MFU)."""


class PretrainPlan(Devices, PretrainConfig):
    """Plan of `make pretrain`."""


class StagesPlan(Devices, StagesConfig):
    """Plan of `make stages`."""


class WmtPlan(Devices, WmtConfig):
    """Plan of `make wmt`."""


class CharLMPlan(Devices, CharLMConfig):
    """Plan of `make charlm`."""


class CausalLMPlan(Devices, CausalLMConfig):
    """Plan of `make clm`."""
