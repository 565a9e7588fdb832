"""CosmoFlowPlan: what tells the variants of CosmoFlow apart, in numbers; pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from voxload.errors import UsageError

CosmoFlowVariant = Literal["mlperf", "lbann"]
"""Names of the variants, as `CosmoFlow` takes them."""

_SMALLEST, _LARGEST = 32, 512
_MLPERF_FIRST_WIDTH, _MLPERF_LARGEST_WIDTH = 32, 512
_MLPERF_LAST_EXTENT = 4
"""Extent of the volume that MLPerf's variant flattens: stages halve the input until it is this small."""
_LBANN_WIDTHS = (16, 32, 64, 128, 256, 256, 256)
_LBANN_STRIDED = 3
"""Index of the one convolution of LBANN's variant that halves its input."""
_LBANN_LAST_EXTENT = 2
"""Extent of the volume that LBANN's variant flattens, at every size."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A convolution over 3x3x3 voxels, its rectifier, and perhaps a pooling."""

    channels: int
    """Channels that the convolution makes."""
    stride: int
    """Voxels from one window of the convolution to the next: 2 halves the extents, rounding up."""
    pool: Literal["maximum", "average"] | None
    """How the extents are halved after the rectifier: the maximum of 2^3, the average of overlapping 3^3, or not."""


@dataclass(frozen=True, slots=True)
class CosmoFlowPlan:
    """One network of the family for one size of cube."""

    stages: tuple[Stage, ...]
    """The convolutions, from the input on."""
    last_extent: int
    """Extent of the cube that is flattened, in voxels."""
    conv_bias: bool
    """Whether convolutions without batch normalisation have a bias."""
    slope: float
    """Slope of the leaky rectifiers below zero."""
    hidden: tuple[int, int]
    """Features of the first two fully connected layers."""
    drops_input: bool
    """Whether features are dropped before the first fully connected layer as well as before the other two."""
    dropout: float
    """Share of the features that is dropped unless the caller says otherwise."""
    dense_bias: float
    """First value of the biases of the fully connected layers."""
    bound: float | None
    """The outputs are this many times a tanh; None for outputs without a bound."""


def plan_cosmoflow(variant: str, size: int) -> CosmoFlowPlan:
    """Return the plan of `variant` for cubes of `size` voxels along each axis.

    Raises
    ------
    UsageError
        For an unknown variant, or a size that is no power of two from 32 to 512.

    Examples
    --------
    >>> [stage.channels for stage in plan_cosmoflow("mlperf", 64).stages]
    [32, 64, 128, 256]
    """
    planner = _PLANNERS.get(variant)
    if planner is None:
        raise UsageError("variant of CosmoFlow", found=repr(variant), expected=" or ".join(map(repr, _PLANNERS)))
    if not _SMALLEST <= size <= _LARGEST or size & (size - 1):
        raise UsageError(
            "size of CosmoFlow", found=str(size), expected=f"a power of two from {_SMALLEST} to {_LARGEST}"
        )
    return planner(size)


def _plan_mlperf(size: int) -> CosmoFlowPlan:
    """Return log2(size) - 2 stages, each of which halves the extents and doubles the channels up to 512."""
    widths = (min(_MLPERF_FIRST_WIDTH << index, _MLPERF_LARGEST_WIDTH) for index in range(_halvings(size) - 2))
    return CosmoFlowPlan(
        stages=tuple(Stage(width, 1, "maximum") for width in widths),
        last_extent=_MLPERF_LAST_EXTENT,
        conv_bias=True,
        slope=0.3,
        hidden=(128, 64),
        drops_input=False,
        dropout=0.5,
        dense_bias=0.0,
        # Targets are scaled to (-1, 1); the output reaches a little further, where tanh is not yet flat.
        bound=1.2,
    )


def _plan_lbann(size: int) -> CosmoFlowPlan:
    """Return seven stages; the fourth convolution halves the extents, and so do as many poolings as 2^3 takes."""
    poolings = _halvings(size) - 2
    return CosmoFlowPlan(
        stages=tuple(
            Stage(width, 2 if index == _LBANN_STRIDED else 1, "average" if index < poolings else None)
            for index, width in enumerate(_LBANN_WIDTHS)
        ),
        last_extent=_LBANN_LAST_EXTENT,
        conv_bias=False,
        # What LBANN's rectifier does when it is given no slope.
        slope=0.01,
        hidden=(2048, 256),
        drops_input=True,
        dropout=0.2,
        dense_bias=0.1,
        bound=None,
    )


def _halvings(size: int) -> int:
    """Return log2 of a power of two."""
    return size.bit_length() - 1


_PLANNERS: dict[str, Callable[[int], CosmoFlowPlan]] = {"mlperf": _plan_mlperf, "lbann": _plan_lbann}
