"""Inputs: what a network is called with, and which of its tensors are blocks of volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.forward.sharding import Sharding
from voxload.engine.model.pytrees import Leaf, leaves, mapped
from voxload.errors import UsageError

_LEADING = 2
"""Dimensions of a volume (B, C, ...) before its extents."""
_EXTENTS = (2, 3)
"""Numbers of extents that a volume may have: those of an image, and those of a volume."""


@dataclass(frozen=True, slots=True)
class TensorSpec(Leaf):
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool = False

    @classmethod
    def of(cls, tensor: Tensor) -> TensorSpec:
        """Return that of a tensor."""
        # A compiler has numbers of its own in shapes, of which each is asked for, and so kept to.
        return cls(tuple(map(int, tensor.shape)), tensor.dtype, tensor.device, tensor.requires_grad)


@dataclass(frozen=True)
class Inputs:
    """What a network is called with on this rank: tensors as TensorSpec, everything else as it is."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Inputs:
        """Return what these arguments are."""

        def described(leaf: Any) -> Any:
            return TensorSpec.of(leaf) if isinstance(leaf, Tensor) else leaf

        return cls(*mapped((tuple(args), dict(kwargs)), described))

    @cached_property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Its tensors, in order."""
        return tuple(leaf for leaf in leaves((self.args, dict(self.kwargs))) if isinstance(leaf, TensorSpec))

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the first tensor; raises UsageError where there is none, or it is no volume and no image."""
        tensors = self.tensors
        if not tensors or len(tensors[0].shape) - _LEADING not in _EXTENTS:
            raise UsageError(
                "input of a split network",
                found="no tensor" if not tensors else f"a first tensor of shape {tensors[0].shape}",
                expected="a block (B, C, d, h, w), or (B, C, h, w) of an image, as its first tensor",
            )
        return tensors[0].shape[_LEADING:]

    @cached_property
    def are_blocks(self) -> tuple[bool, ...]:
        """Whether each tensor is a block: the first one is, and those whose last extents are its.

        All others are whole, and the same on all ranks. Raises UsageError for what looks like a volume of its own.
        """
        extents, tensors = self.extents, self.tensors
        found = tuple(each.shape[-len(extents) :] == extents for each in tensors)
        for each, is_block in zip(tensors, found, strict=True):
            if not is_block and len(each.shape) == len(tensors[0].shape):
                raise UsageError(
                    "input of a split network",
                    found=f"a tensor of shape {each.shape} beside the first one, of shape {tensors[0].shape}",
                    expected="blocks of volumes of the same extents, and tensors of fewer dimensions, which are whole",
                    remedy="give each rank the same block of both",
                )
        return found

    def cuts(self, blocks: Blocks) -> tuple[Sharding, ...]:
        """Return the cut of every tensor where the first one is a block of a volume that is cut into `blocks`."""
        found = []
        for each, is_block in zip(self.tensors, self.are_blocks, strict=True):
            count = len(self.tensors[0].shape) - _LEADING
            leading = each.shape[: len(each.shape) - count]
            cut = Sharding.of_volume(blocks, leading=leading)
            dims = (*cut.dims[: len(leading)], *cut.dims[len(cut.dims) - count :])
            found.append(Sharding(dims) if is_block else Sharding.whole(each.shape))
        return tuple(found)

    def whole(self, cuts: Sequence[Sharding]) -> Inputs:
        """Return what the whole network would be called with."""
        left = iter(cuts)

        def grown(leaf: Any) -> Any:
            return replace(leaf, shape=next(left).shape) if isinstance(leaf, TensorSpec) else leaf

        return Inputs(*mapped((self.args, dict(self.kwargs)), grown))

    def described(self) -> str:
        """Return as text what all ranks of a sample group must be called with alike."""

        def alike(leaf: Any) -> Any:
            if not isinstance(leaf, TensorSpec):
                return leaf if isinstance(leaf, bool | int | float | str | type(None)) else type(leaf).__name__
            is_block = next(marks)
            count = len(self.tensors[0].shape) - _LEADING
            return (is_block, leaf.shape[:-count] if is_block else leaf.shape, str(leaf.dtype), leaf.requires_grad)

        marks = iter(self.are_blocks)
        return repr(mapped((self.args, dict(self.kwargs)), alike))
