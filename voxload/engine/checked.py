"""Checked: what a comparison of a split network with the network itself found, in training and in evaluation."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import nn

from voxload.engine.aligned import aligned
from voxload.engine.shapes import CHANNEL_NAMES, on_meta
from voxload.engine.virtual import INPUT, RESULT, Differences, Split, differences

VALUES, GRADIENTS = 1e-10, 1e-8
"""Largest relative differences of values and of gradients in float64 that are rounding."""
_BATCH = 2
"""Samples: a normalisation in training refuses a batch of one where nothing is left of the extents."""
_CHANNELS = (1, 2, 3, 4)
"""Channels that are tried for a network that does not tell them."""
_EXTENTS = (8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Extents that are tried, in this order, for a volume that is small and is split all the same."""
_NARROWEST = 4
"""Voxels of a block that is cut from such a volume."""
_MOST_VOXELS = 128**3
"""Voxels of a volume that is computed with several times in float64, without being asked for by its extents."""
_MODES = {"training": True, "evaluation": False}
_HEADER = ("mode", "result", "gradient of the input", "gradients of parameters", "buffers", "verdict")
_EQUAL, _RANDOM = "equal", "not compared: forward draws random numbers"


@dataclass(frozen=True, slots=True)
class Checked:
    """How far a network that runs split is from itself in one process, in float64.

    >>> from voxload.engine.virtual import Differences
    >>> print(Checked((2, 1, 1), (2, 1, 8, 8, 8), {"evaluation": Differences({"result": 0.0}, {})}))
    mode        result  gradient of the input  gradients of parameters  buffers  verdict
    evaluation  0.0e+00  0.0e+00                -                        -        equal
    """

    spatial: tuple[int, ...]
    """Blocks along (d, h, w)."""
    size: tuple[int, ...]
    """Extents of the batch, (B, C, D, H, W)."""
    modes: Mapping[str, Differences | None]
    """By "training" and "evaluation"; None where ``forward`` draws random numbers, which differ by nature."""

    @property
    def is_equal(self) -> bool:
        """Whether anything was compared, and all of it is equal to rounding: values to 1e-10, gradients to 1e-8."""
        return any(self.modes.values()) and not self.difference

    @property
    def not_compared(self) -> tuple[str, ...]:
        """The modes in which ``forward`` draws random numbers."""
        return tuple(mode for mode, one in self.modes.items() if one is None)

    @property
    def difference(self) -> str:
        """What differs most, in the first mode in which anything does; empty where nothing does."""
        for mode, one in self.modes.items():
            if one is not None and (worst := _worst(one)):
                return f"{worst} in {mode}, {one.all[worst]:.1e} of the largest value"
        return ""

    def __str__(self) -> str:
        return aligned([_HEADER, *(_row(mode, one) for mode, one in self.modes.items())])


def checked(model: nn.Module, size: Sequence[int], spatial: Sequence[int], split: Split) -> Checked:
    """Compare `model` with what `split` makes of it, on one volume of random numbers, in float64 on the host.

    Dropout layers drop nothing in this. The model, its gradients and torch's random numbers are left as they are.

    Parameters
    ----------
    model
        The network.
    size
        Extents of the batch, (B, C, D, H, W).
    spatial
        Blocks along (d, h, w).
    split
        What makes the network of one rank.

    Raises
    ------
    UsageError
        Where `split` refuses the network or the volume.
    """
    modes: dict[str, Differences | None] = {}
    x = torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    twin = copy.deepcopy(model).to("cpu", torch.float64)
    for module in twin.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):  # noqa: SLF001 - what torch's dropout layers have in common
            module.p = 0.0
    for mode, is_training in _MODES.items():
        modes[mode] = differences(twin.train(is_training), x, spatial, split)
    return Checked(tuple(spatial), tuple(size), modes)


def whole_size(model: nn.Module, shape: Sequence[int], channels: int | None = None) -> tuple[int, ...] | None:
    """Return the extents (B, C, D, H, W) of a batch of volumes of this shape that `model` takes.

    None where it takes none; nothing is computed. Channels are looked for where they are not given.
    """
    told = (getattr(module, name, None) for module in model.modules() for name in CHANNEL_NAMES)
    first = next((one for one in told if isinstance(one, int)), None)
    wanted = (channels,) if channels else (first, *_CHANNELS) if first else _CHANNELS
    twin = on_meta(model)
    for each in wanted:
        size = (_BATCH, each, *shape)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                twin(torch.empty(size, device="meta"))
        except Exception:  # noqa: BLE001, S112 - whatever a stranger's forward raises for a size that it does not take
            continue
        return size
    return None


def small_sizes(model: nn.Module, shape: Sequence[int] | None, spatial: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield batches to compare with: the smallest volumes that `model` takes and `spatial` can cut, rising.

    The last one has the extents `shape`, for a network that takes no others. None is beyond 128^3 voxels.
    """
    shapes = [(extent,) * 3 for extent in _EXTENTS if extent >= _NARROWEST * max(spatial)]
    if shape is not None:
        shapes = [one for one in shapes if prod(one) < prod(shape)] + [(shape[0], shape[1], shape[2])]
    for one in shapes:
        size = whole_size(model, one) if prod(one) <= _MOST_VOXELS else None
        if size is not None:
            yield size


def _worst(one: Differences) -> str:
    """Return the name of the quantity that differs by more than rounding, and most; empty where none does."""
    limits = dict.fromkeys(one.values, VALUES) | dict.fromkeys(one.gradients, GRADIENTS)
    name = max(limits, key=lambda name: one.all[name] / limits[name])
    return name if one.all[name] > limits[name] else ""


def _row(mode: str, one: Differences | None) -> tuple[str, ...]:
    """Return the cells of one mode."""
    if one is None:
        return (mode, "-", "-", "-", "-", _RANDOM)
    weights = {name: error for name, error in one.gradients.items() if name != INPUT}
    buffers = {name: error for name, error in one.values.items() if name != RESULT}
    figures = ({RESULT: one.values[RESULT]}, {INPUT: one.gradients.get(INPUT, 0.0)}, weights, buffers)
    worst = _worst(one)
    return (
        mode,
        *(f"{max(each.values()):.1e}" if each else "-" for each in figures),
        f"differs: {worst}" if worst else _EQUAL,
    )
