"""Training: what is to be trained, by the words of whoever asks; and the network that these name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import torch
from torch import nn

from voxload.errors import UsageError
from voxload.models import CosmoFlow, UNet3D
from voxload.plan.platform.platform import AUTOCAST
from voxload.plan.trace.step import Optimizer, trace_volume
from voxload.plan.trace.volume import VolumeTrace

OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        "sgd": torch.optim.SGD,
    }
)
"""By the names that commands take."""
WRAPPERS = ("ddp", "fsdp", "fsdp-modules")
"""DistributedDataParallel; ``fully_shard`` around the whole network; or around each module with weights as well."""
NETWORKS = ("cosmoflow", "cosmoflow-lbann", "unet3d", "unet3d-lbann")
"""Names of our own networks, and of their variants."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is to be trained."""

    model: str
    """One of `NETWORKS`, or ``module:callable`` of what returns a network."""
    sample: tuple[int, int, int, int]
    """Channels and extents (C, D, H, W) of a sample."""
    batch: int
    """Samples of a step, of all ranks together."""
    optimizer: str = "adam"
    """One of `OPTIMIZERS`."""
    dtype: str = "float32"
    """What convolutions and products of matrices are computed in, as a machine's ``[device.flops]`` calls it; tensors
    are float32, but where autocast makes others."""
    wrapper: str = "ddp"
    """What averages gradients, one of `WRAPPERS`."""

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise UsageError("optimiser", found=repr(self.optimizer), expected=", ".join(OPTIMIZERS))
        if self.wrapper not in WRAPPERS:
            raise UsageError("--wrapper", found=repr(self.wrapper), expected=", ".join(WRAPPERS))
        if min(self.sample) < 1 or self.batch < 1:
            raise UsageError(
                "training",
                found=f"samples of {self.sample}, batches of {self.batch}",
                expected="four extents C,D,H,W and a batch, all of 1 or more",
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Extents (D, H, W)."""
        return self.sample[1], self.sample[2], self.sample[3]

    @property
    def autocast(self) -> torch.dtype | None:
        """The type that autocast casts to; None where nothing is cast."""
        found: torch.dtype | None = getattr(torch, self.dtype) if self.dtype in AUTOCAST else None
        return found

    def network(self) -> nn.Module:
        """Return the network, its weights without data; raises UsageError where the name names none."""
        with torch.device("meta"):
            return make_network(self.model, self.sample)

    def trace(self) -> VolumeTrace:
        """Return what a step takes of a rank that has whole samples."""
        make = OPTIMIZERS[self.optimizer]
        return trace_volume(self.network(), self.shape, channels=self.sample[0], optimizer=make, autocast=self.autocast)


def make_network(name: str, sample: tuple[int, int, int, int]) -> nn.Module:
    """Return a network by the name that commands take, its weights on torch's default device."""
    channels, *extents = sample
    base, _, variant = name.partition("-")
    if base == "cosmoflow" and name in NETWORKS:
        if len(set(extents)) > 1:
            raise UsageError(name, found=f"samples of {tuple(extents)}", expected="cubes")
        return CosmoFlow(extents[0], channels, variant="lbann" if variant else "mlperf")
    if base == "unet3d" and name in NETWORKS:
        return UNet3D(channels, 3, variant="lbann" if variant else "kits19")
    made = _callable(name)()
    if not isinstance(made, nn.Module):
        raise UsageError(name, found=f"what returns {type(made).__name__}", expected="what returns a torch.nn.Module")
    return made


def _callable(name: str) -> Callable[[], object]:
    module, _, attribute = name.partition(":")
    wanted = f"one of {', '.join(NETWORKS)}, or module:callable"
    if not attribute:
        raise UsageError("network", found=repr(name), expected=wanted)
    try:
        found: Callable[[], object] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            "network", found=f"{name!r}: {error}", expected=wanted, remedy="is its folder on PYTHONPATH?"
        ) from error
    if not callable(found):
        raise UsageError(name, found=type(found).__name__, expected="what returns a network when called")
    return found
