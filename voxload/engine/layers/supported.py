"""What of torch runs on blocks in a traced network: layers with a split form, and what treats each voxel by itself."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from voxload.engine.layers.convolution import split_conv3d, split_conv_transpose3d
from voxload.engine.layers.form import Form
from voxload.engine.layers.normalisation import split_batch_norm, split_group_norm, split_instance_norm
from voxload.engine.layers.pooling import split_adaptive_pool, split_avg_pool3d, split_max_pool3d
from voxload.engine.layers.stencil import PADDINGS, split_padding
from voxload.engine.layers.upsample import split_upsample

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


LAYERS: frozenset[type[nn.Module]] = frozenset(
    {
        nn.CELU,
        nn.ELU,
        nn.GELU,
        nn.Hardshrink,
        nn.Hardsigmoid,
        nn.Hardswish,
        nn.Hardtanh,
        nn.Identity,
        nn.LeakyReLU,
        nn.LogSigmoid,
        nn.Mish,
        nn.PReLU,
        nn.ReLU,
        nn.ReLU6,
        nn.SELU,
        nn.SiLU,
        nn.Sigmoid,
        nn.Softplus,
        nn.Softshrink,
        nn.Softsign,
        nn.Tanh,
        nn.Tanhshrink,
        nn.Threshold,
    }
)
"""Layers without random numbers and without statistics."""

FUNCTIONS: frozenset[Callable[..., Any]] = frozenset(
    {
        abs,
        functional.celu,
        functional.elu,
        functional.gelu,
        functional.hardsigmoid,
        functional.hardswish,
        functional.hardtanh,
        functional.leaky_relu,
        functional.logsigmoid,
        functional.mish,
        functional.relu,
        functional.relu6,
        functional.selu,
        functional.sigmoid,
        functional.silu,
        functional.softplus,
        functional.softsign,
        functional.tanh,
        operator.add,
        operator.iadd,
        operator.imul,
        operator.isub,
        operator.itruediv,
        operator.mul,
        operator.neg,
        operator.pow,
        operator.sub,
        operator.truediv,
        torch.abs,
        torch.add,
        torch.clamp,
        torch.div,
        torch.exp,
        torch.log,
        torch.log1p,
        torch.maximum,
        torch.minimum,
        torch.mul,
        torch.neg,
        torch.pow,
        torch.relu,
        torch.sigmoid,
        torch.sqrt,
        torch.square,
        torch.sub,
        torch.tanh,
    }
)
"""Functions of one or two blocks and plain numbers."""

METHODS: frozenset[str] = frozenset(
    {
        "abs",
        "add",
        "bfloat16",
        "clamp",
        "clone",
        "contiguous",
        "div",
        "double",
        "exp",
        "float",
        "half",
        "log",
        "log1p",
        "mul",
        "neg",
        "pow",
        "relu",
        "sigmoid",
        "sqrt",
        "square",
        "sub",
        "tanh",
    }
)
"""Methods of a tensor that are such functions."""

CHANNELS_LAST: frozenset[type[nn.Module]] = LAYERS - {nn.PReLU} | {nn.Linear}
"""Layers that treat each voxel by itself where channels are the last dimension; PReLU looks for them in the second."""

DETERMINISTIC: frozenset[type[nn.Module]] = LAYERS | {
    nn.AdaptiveAvgPool3d,
    nn.AdaptiveMaxPool3d,
    nn.AvgPool3d,
    nn.BatchNorm1d,
    nn.BatchNorm3d,
    nn.Bilinear,
    nn.Conv3d,
    nn.ConvTranspose3d,
    nn.Flatten,
    nn.GroupNorm,
    nn.InstanceNorm3d,
    nn.LayerNorm,
    nn.Linear,
    nn.MaxPool3d,
    nn.ModuleDict,
    nn.ModuleList,
    nn.Sequential,
    nn.Softmax,
    nn.LogSoftmax,
    nn.Unflatten,
    nn.Upsample,
}
"""Layers that never draw random numbers, in the replicated head too."""

DETERMINISTIC_FUNCTIONS: frozenset[Callable[..., Any]] = FUNCTIONS | {
    functional.linear,
    functional.log_softmax,
    functional.softmax,
    getattr,
    operator.getitem,
    torch.cat,
    torch.flatten,
    torch.mean,
    torch.reshape,
    torch.softmax,
    torch.stack,
    torch.sum,
    torch.squeeze,
    torch.unsqueeze,
}
"""Functions that never draw random numbers."""

DETERMINISTIC_METHODS: frozenset[str] = METHODS | {
    "flatten",
    "mean",
    "permute",
    "reshape",
    "size",
    "softmax",
    "squeeze",
    "sum",
    "transpose",
    "unsqueeze",
    "view",
}
"""Methods of a tensor that never draw random numbers."""
