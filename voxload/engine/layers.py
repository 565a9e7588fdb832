"""The layers of torch that have a split form, by their class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from voxload.engine.conv import split_conv3d
from voxload.engine.form import Form
from voxload.engine.norm import split_batch_norm, split_group_norm, split_instance_norm
from voxload.engine.padding import PADDINGS, split_padding
from voxload.engine.pool import split_avg_pool3d, split_max_pool3d
from voxload.engine.reduction import split_adaptive_pool
from voxload.engine.resize import split_upsample
from voxload.engine.transposed import split_conv_transpose3d

Split = Callable[[Any, tuple[bool, ...]], tuple[Form, nn.Module]]
"""Returns the form of a layer and the layer as it runs on blocks, given which axes are split."""

FORMS: dict[type[nn.Module], Split] = {
    nn.Conv3d: split_conv3d,
    nn.ConvTranspose3d: split_conv_transpose3d,
    nn.MaxPool3d: split_max_pool3d,
    nn.AvgPool3d: split_avg_pool3d,
    nn.BatchNorm3d: split_batch_norm,
    nn.SyncBatchNorm: split_batch_norm,
    nn.InstanceNorm3d: split_instance_norm,
    nn.GroupNorm: split_group_norm,
    nn.Upsample: split_upsample,
    **dict.fromkeys(PADDINGS, split_padding),
}
"""Layers that make a volume of a volume. The exact class counts: a subclass may compute something else."""

REDUCTIONS: dict[type[nn.Module], Split] = {
    nn.AdaptiveAvgPool3d: split_adaptive_pool,
    nn.AdaptiveMaxPool3d: split_adaptive_pool,
}
"""Layers whose result is small and whole on every rank."""

DROPOUTS: tuple[type[nn.Module], ...] = (nn.Dropout, nn.Dropout3d)
"""Layers that draw one number per voxel, or per channel."""
