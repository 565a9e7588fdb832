"""Decoding: what stored numbers stand for by CF attributes, worked out where a batch already is.

Integers travel as they are stored; they become floats behind the copy to a device, in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from voxload.readers.cfpacking import Packing, decoded_type

Packings = tuple[Packing | None, ...]
"""Of a field of a sample: none where its numbers stand for themselves, one for all channels, or one for each."""
_BITS = 8


def decoded(volume: torch.Tensor, packings: Packings) -> torch.Tensor:
    """Return what a volume ``(C, d, h, w)`` stands for; itself where that is what is stored.

    Floats of 64 bits stay so, all others become float32: of integers of up to 16 bits the product and the sum are
    rounded to float32 each, of longer ones both are worked out in 64 bits. A fill value becomes NaN.
    """
    if not packings:
        return volume
    channels = volume.shape[0]
    if len(packings) == 1:
        return _decoded(volume, packings[0])
    out = torch.empty(volume.shape, dtype=_target(volume.dtype), device=volume.device)
    for channel in range(channels):  # of each time step the same ones
        out[channel] = _decoded(volume[channel], packings[channel % len(packings)])
    return out


def decoded_batch(volumes: torch.Tensor, packings: Sequence[Packings]) -> torch.Tensor:
    """Return what a batch ``(B, C, d, h, w)`` stands for, each sample by its own packing; see `decoded`."""
    if not any(packings):
        return volumes
    first = packings[0]
    if len(first) == 1 and all(one == first for one in packings):  # nearly always
        return _decoded(volumes, first[0])
    out = torch.empty(volumes.shape, dtype=_target(volumes.dtype), device=volumes.device)
    for place, own in enumerate(packings):
        out[place] = decoded(volumes[place], own)
    return out


def _target(dtype: torch.dtype) -> torch.dtype:
    found: torch.dtype = getattr(torch, decoded_type(str(dtype).removeprefix("torch.")))
    return found


def _decoded(stored: torch.Tensor, packing: Packing | None) -> torch.Tensor:
    """Return what numbers of one packing stand for."""
    target = _target(stored.dtype)
    if packing is None:
        return stored.to(target)
    is_long = not stored.dtype.is_floating_point and stored.element_size() > 2
    values = stored.to(torch.float64 if is_long else target, copy=True)  # what is stored stays: fills are looked for
    if packing.wraps:
        span = float(2 ** (_BITS * stored.element_size()))
        is_signed = stored.dtype.is_signed
        values += torch.where(values < 0, span, 0.0) if is_signed else torch.where(values >= span / 2, -span, 0.0)
    if packing.scale != 1:
        values *= packing.scale
    if packing.offset != 0:
        values += packing.offset
    for fill in packing.fills:
        values.masked_fill_(
            stored == _as(fill, stored.dtype), torch.nan
        )  # which a device does without being waited for
    return values.to(target)


def _as(fill: float, dtype: torch.dtype) -> float | int:
    """Return a fill value as a number of a type: rounded as the stored ones are, which were written with it."""
    return torch.tensor(fill, dtype=dtype).item() if dtype.is_floating_point else int(fill)
