"""CosmoFlow: cosmological parameters from a simulated universe, as MLPerf HPC and as LBANN train it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

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


_MOMENTUM = 0.01
"""Weight of a batch in the running statistics: LBANN keeps 0.99 of the old ones."""


class CosmoFlow(nn.Module):
    """The network of Mathuriya et al. (2018) in one of two variants, for cubes of 32 to 512 voxels.

    ``"mlperf"``, the one of the benchmark MLPerf HPC (mlcommons/hpc, cosmoflow): log2(size) - 2 blocks of a 3x3x3
    convolution with bias, a leaky rectifier of slope 0.3 and a maximum over 2x2x2 voxels, with 32, 64, ... up to
    512 channels, until 4x4x4 voxels are left; three fully connected layers of 128, 64 and `targets`, with dropout
    after each of the first two; the output is 1.2 tanh. For size 128 this is MLPerf's own network; other sizes
    follow LBANN's generalisation of it.

    ``"lbann"``, the one of LBANN for which Oyama et al. (2020) published scaling to cubes of 512 (LLNL/lbann,
    applications/physics/cosmology/cosmoflow, from October 2020 to August 2023): always seven 3x3x3 convolutions
    without bias, of 16, 32, 64, 128, 256, 256 and 256 channels, the fourth with stride 2, each with a leaky
    rectifier of slope 0.01; then three fully connected layers of 2048, 256 and `targets`, with dropout before each,
    and no bound on the output. After the first log2(size) - 2 rectifiers follows an average over 3x3x3 voxels with
    stride 2 and padding 1, whose zeros count: after five, six and all seven for the source's sizes 128, 256 and 512.
    2x2x2 voxels are left, so that all sizes have the same parameters. That rule also makes the sizes 32 and 64,
    with three and four averages, which the source does not have.

    Parameters
    ----------
    size
        Extent of the cube along each axis, in voxels: a power of two from 32 to 512.
    channels
        Channels of the input, one per redshift.
    targets
        Parameters to predict.
    variant
        ``"mlperf"`` or ``"lbann"``, as above.
    batch_norm
        Normalise over the batch between each convolution and its rectifier. Convolutions then have no bias, and
        running statistics keep 0.99 of the old ones, as LBANN does in both of its variants since August 2023.
    dropout
        Share of the features that is dropped at each place where the variant drops some; None for what its source
        drops: 0.5 for ``"mlperf"``, 0.2 for ``"lbann"``.

    Raises
    ------
    UsageError
        For an unknown variant, another size, fewer than one channel or target, or a dropout outside [0, 1).

    Examples
    --------
    >>> sum(weight.numel() for weight in CosmoFlow(128).parameters())
    8907556
    >>> sum(weight.numel() for weight in CosmoFlow(64, variant="lbann").parameters())
    9437636
    """

    def __init__(
        self,
        size: int,
        channels: int = 4,
        targets: int = 4,
        *,
        variant: CosmoFlowVariant = "mlperf",
        batch_norm: bool = False,
        dropout: float | None = None,
    ) -> None:
        plan = plan_cosmoflow(variant, size)
        dropped = plan.dropout if dropout is None else dropout
        if channels < 1 or targets < 1 or not 0 <= dropped < 1:
            raise UsageError(
                "CosmoFlow",
                found=f"channels={channels}, targets={targets}, dropout={dropout}",
                expected="at least one channel and target, and a dropout in [0, 1)",
            )
        super().__init__()
        self.input_shape = (size, size, size)
        self._plan = plan
        self._batch_norm = batch_norm
        self.features = _features(plan, channels, batch_norm=batch_norm)
        self.head = _head(plan, targets, dropped)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew and reset the biases and the running statistics.

        Weights follow Glorot's uniform distribution, as in both sources; with batch normalisation He's normal
        distribution with variance 2 / fan-in, from which LBANN draws since August 2023. Biases start at zero, those
        of the fully connected layers of ``"lbann"`` at 0.1.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv3d | nn.Linear):
                self._draw(module)
            elif isinstance(module, nn.BatchNorm3d):
                module.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Return the predicted parameters, (B, targets): in (-1.2, 1.2) for ``"mlperf"``, any for ``"lbann"``.

        Parameters
        ----------
        x
            (B, channels, size, size, size), usually log1p of the particle counts.
        """
        predicted: Tensor = self.head(self.features(x))
        return predicted if self._plan.bound is None else predicted * self._plan.bound

    def _draw(self, layer: nn.Conv3d | nn.Linear) -> None:
        if self._batch_norm:
            # The gain of a plain rectifier: LBANN leaves the slope below zero out of the variance.
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        else:
            nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.constant_(layer.bias, self._plan.dense_bias if isinstance(layer, nn.Linear) else 0.0)


def _features(plan: CosmoFlowPlan, channels: int, *, batch_norm: bool) -> nn.Sequential:
    """Return the stages of `plan` for an input of `channels`, one Sequential each."""
    widths = [channels, *(stage.channels for stage in plan.stages)]
    return nn.Sequential(
        *(
            nn.Sequential(*_stage(plan, stage, before, batch_norm=batch_norm))
            for before, stage in zip(widths[:-1], plan.stages, strict=True)
        )
    )


def _stage(plan: CosmoFlowPlan, stage: Stage, before: int, *, batch_norm: bool) -> list[nn.Module]:
    """Return the layers of one stage, in order."""
    bias = plan.conv_bias and not batch_norm
    layers: list[nn.Module] = [nn.Conv3d(before, stage.channels, 3, stage.stride, padding=1, bias=bias)]
    if batch_norm:
        layers.append(nn.BatchNorm3d(stage.channels, momentum=_MOMENTUM))
    layers.append(nn.LeakyReLU(plan.slope))
    if stage.pool is not None:
        layers.append(nn.MaxPool3d(2) if stage.pool == "maximum" else nn.AvgPool3d(3, stride=2, padding=1))
    return layers


def _head(plan: CosmoFlowPlan, targets: int, dropout: float) -> nn.Sequential:
    """Return the fully connected layers with what is between them, and the flattening before."""
    layers: list[nn.Module] = [nn.Flatten()]
    if plan.drops_input:
        layers.append(nn.Dropout(dropout))
    widths = (plan.stages[-1].channels * plan.last_extent**3, *plan.hidden)
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.LeakyReLU(plan.slope), nn.Dropout(dropout)]
    layers.append(nn.Linear(plan.hidden[-1], targets))
    if plan.bound is not None:
        layers.append(nn.Tanh())
    return nn.Sequential(*layers)
