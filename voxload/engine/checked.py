"""Checked: what a comparison of a split network with the network itself found, as a table."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine.comparison import INPUT, RESULT, Differences, Split, differences, to_double
from voxload.engine.forward.plan_cache import plans_shared
from voxload.engine.model.pytrees import mapped


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Return `rows` as lines of aligned columns.

    Examples
    --------
    >>> print(aligned([("layer", "ranks"), ("conv1", "4")]))
    layer  ranks
    conv1  4
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


VALUES, GRADIENTS = 1e-10, 1e-8
"""Largest relative differences of values and of gradients in float64 that are rounding."""
_MODES = {"training": True, "evaluation": False}
_HEADER = ("mode", "result", "gradient of the input", "gradients of parameters", "buffers", "verdict")
_EQUAL, _RANDOM = "equal", "not compared: forward draws random numbers"


@dataclass(frozen=True, slots=True)
class Checked:
    """How far a network that runs split is from itself in one process, in float64.

    Examples
    --------
    >>> from voxload.engine.comparison import Differences
    >>> print(Checked((2, 1, 1), (2, 1, 8, 8, 8), {"evaluation": Differences({"result": 0.0}, {})}))
    mode        result  gradient of the input  gradients of parameters  buffers  verdict
    evaluation  0.0e+00  0.0e+00                -                        -        equal
    """

    spatial: tuple[int, ...]
    """Blocks along (d, h, w)."""
    size: tuple[int, ...]
    """Extents of the batch, (B, C, D, H, W)."""
    modes: Mapping[str, Differences | None]
    """By "training" and "evaluation"; None where random numbers that ``forward`` draws differ by nature."""

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


def checked(
    model: nn.Module, size: Sequence[int], spatial: Sequence[int], split: Split, *, args: Sequence[Any] = ()
) -> Checked:
    """Compare `model` with what `split` makes of it, on one volume of random numbers, in float64 on the host.

    Dropout layers drop nothing in this, and what forward itself casts to single precision is cast to double. The model,
    its gradients and torch's random numbers are left as they are.

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
    args
        What forward takes beside the volume; floating-point tensors are taken in float64.

    Raises
    ------
    UsageError
        Where `split` refuses the network or the volume.
    """
    modes: dict[str, Differences | None] = {}
    x = torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    twin = copy.deepcopy(model)
    twin._apply(to_double)  # type: ignore[no-untyped-call] # noqa: SLF001 - `to` makes complex weights real ones
    more = mapped(tuple(args), lambda leaf: to_double(leaf) if isinstance(leaf, Tensor) else leaf)
    for module in twin.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):  # noqa: SLF001 - what torch's dropout layers have in common
            module.p = 0.0
    with plans_shared():
        for mode, is_training in _MODES.items():
            modes[mode] = differences(twin.train(is_training), x, spatial, split, args=more)
    return Checked(tuple(spatial), tuple(size), modes)


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
