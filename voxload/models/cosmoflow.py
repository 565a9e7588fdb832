"""CosmoFlow: cosmological parameters from a simulated universe, in the variant of the MLPerf HPC benchmark."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from voxload.errors import UsageError

_SMALLEST, _LARGEST = 32, 512
_FIRST_WIDTH, _LARGEST_WIDTH = 32, 512
_LAST_EXTENT = 4
"""Extent of the volume that is flattened: blocks halve the input until it is this small."""
_SLOPE = 0.3
"""Slope of the leaky rectifiers below zero."""
_OUTPUT_SCALE = 1.2
"""Targets are scaled to (-1, 1); the output reaches a little further, where tanh is not yet flat."""


class CosmoFlow(nn.Module):
    """The network of Mathuriya et al. (2018), as MLPerf HPC runs it, for cubes of 32 to 512 voxels.

    log2(size) - 2 blocks of a 3x3x3 convolution, a leaky rectifier and a maximum over 2x2x2 voxels, with
    32, 64, ... up to 512 channels, then three fully connected layers of 128, 64 and `targets`. For size 128
    this is MLPerf's own network; other sizes follow LBANN's generalisation of it.

    Parameters
    ----------
    size
        Extent of the cube along each axis, in voxels: a power of two from 32 to 512.
    channels
        Channels of the input, one per redshift.
    targets
        Parameters to predict.
    dropout
        Share of the features that is dropped after each of the first two fully connected layers.

    Raises
    ------
    UsageError
        For another size, fewer than one channel or target, or a dropout outside [0, 1).

    Examples
    --------
    >>> sum(weight.numel() for weight in CosmoFlow(128).parameters())
    8907556
    """

    def __init__(self, size: int, channels: int = 4, targets: int = 4, *, dropout: float = 0.5) -> None:
        if not _SMALLEST <= size <= _LARGEST or size & (size - 1):
            raise UsageError(
                "size of CosmoFlow", found=str(size), expected=f"a power of two from {_SMALLEST} to {_LARGEST}"
            )
        if channels < 1 or targets < 1 or not 0 <= dropout < 1:
            raise UsageError(
                "CosmoFlow",
                found=f"channels={channels}, targets={targets}, dropout={dropout}",
                expected="at least one channel and target, and a dropout in [0, 1)",
            )
        super().__init__()
        self.input_shape = (size, size, size)
        blocks = (size // _LAST_EXTENT).bit_length() - 1
        widths = [channels, *(min(_FIRST_WIDTH << index, _LARGEST_WIDTH) for index in range(blocks))]
        self.features = nn.Sequential(*(_block(before, after) for before, after in pairwise(widths)))
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Linear(widths[-1] * _LAST_EXTENT**3, 128),
            nn.LeakyReLU(_SLOPE),
            nn.Dropout(dropout),
            nn.Linear(128, 64),
            nn.LeakyReLU(_SLOPE),
            nn.Dropout(dropout),
            nn.Linear(64, targets),
            nn.Tanh(),
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew: Glorot's uniform distribution, zeros for the biases."""
        for module in self.modules():
            if isinstance(module, nn.Conv3d | nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the predicted parameters, (B, targets), in (-1.2, 1.2).

        Parameters
        ----------
        x
            (B, channels, size, size, size), usually log1p of the particle counts.
        """
        scaled: Tensor = self.head(self.features(x)) * _OUTPUT_SCALE
        return scaled


def _block(before: int, after: int) -> nn.Sequential:
    """Return one convolution with its rectifier and pooling."""
    return nn.Sequential(nn.Conv3d(before, after, 3, padding="same"), nn.LeakyReLU(_SLOPE), nn.MaxPool3d(2))
