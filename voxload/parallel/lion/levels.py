"""Levels: what a number of an update becomes on its way to other groups, and what their sum becomes on its way back.

Numbers travel in rows of one length, as `bits` each. With p of them a byte, byte j of a row of n numbers has those at
j, j + n/p, j + 2 n/p, ..., from its lowest bits up. A row's length is a multiple of `UNIT`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from voxload.core.library import function
from voxload.errors import UsageError

UNIT = 16
"""A row's length is a multiple: whole bytes at any width, and places of either parity alike in all parts of a row."""
BITS = (1, 2, 4, 8)
"""Widths of what is sent."""
_WIDTHS = (1, 2, 4, 8, 16, 32)
_TYPES = {16: torch.int16, 32: torch.int32}
_pack_signs = function("pack_signs", "pnnnp", "n")
_pack_levels = function("pack_levels", "pnnnnp", "n")
_sum_levels = function("sum_levels", "pnnnnnnnp")
_unpack_levels = function("unpack_levels", "pnnnndddp")


class Combine(StrEnum):
    """How the updates of sample groups become one."""

    MAJORITY = "majority"
    """The sign of the sum of their signs."""
    LEVELS = "p-bit"
    """The sign of the sum of their levels."""
    MEAN = "mean"
    """The mean of their levels, over the highest level."""
    EXACT = "exact"
    """None of that: gradients are averaged, as for any optimiser."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Levels of the updates of so many groups; pure.

    Parameters
    ----------
    combine
        How updates become one.
    bits
        Of a number that is sent: 1 are signs, 2, 4 and 8 whole numbers up to `limit` either way.
    groups
        How many are added up. Sums are taken in 32 bits.
    """

    combine: Combine
    bits: int
    groups: int

    def __post_init__(self) -> None:
        if self.bits not in BITS or (self.combine is Combine.MAJORITY and self.bits != 1):
            raise UsageError(
                f"Lion's bits with combine={str(self.combine)!r}",
                found=repr(self.bits),
                expected="1" if self.combine is Combine.MAJORITY else "1, 2, 4 or 8",
            )
        if self.groups * self.limit >= 2**30:
            raise UsageError("Lion", found=f"{self.groups} sample groups", expected=f"fewer than {2**30 // self.limit}")

    @property
    def limit(self) -> int:
        """The highest level."""
        return int(max(2 ** (self.bits - 1) - 1, 1))

    @property
    def result_bits(self) -> int:
        """Width of what comes back: 1 where no sum is 0, 2 for signs, and for means whatever holds all sums."""
        if self.combine is Combine.MEAN:
            return next(width for width in _WIDTHS if 2 * self.groups * self.limit < 2**width)
        return 1 if self.bits == 1 and self.groups % 2 else 2

    def packed(self, numbers: Tensor, *, odd: bool) -> tuple[Tensor, Tensor]:
        """Return rows of numbers ``(R, n)`` as bytes ``(R, n * bits / 8)``, and whether any is no number, as uint8.

        Levels are of numbers that are scaled already. A zero's sign is that of its place: those of odd places are
        positive where `odd`, else those of even ones; so zeros of many groups and steps add up to nothing.
        """
        if numbers.device.type == "cpu" and numbers.dtype == torch.float32 and numbers.is_contiguous():
            return self._packed_by_core(numbers, odd=odd)
        if self.bits == 1:
            places = torch.arange(numbers.shape[1], device=numbers.device) % 2 == int(odd)
            fields = ((numbers > 0) | ((numbers == 0) & places)).to(torch.uint8)
        else:
            levels = numbers.nan_to_num(0.0).clamp(-self.limit, self.limit).round()
            fields = (levels + self.limit).to(torch.uint8)
        return _joined(fields, self.bits), torch.isnan(numbers).any().to(torch.uint8).reshape(1)

    def _packed_by_core(self, numbers: Tensor, *, odd: bool) -> tuple[Tensor, Tensor]:
        rows, count = numbers.shape
        packed = torch.empty(rows, count * self.bits // 8, dtype=torch.uint8)
        if self.bits == 1:
            nans = _pack_signs(numbers.data_ptr(), rows, count, int(odd), packed.data_ptr())
        else:
            nans = _pack_levels(numbers.data_ptr(), rows, count, self.bits, self.limit, packed.data_ptr())
        return packed, torch.tensor([nans > 0], dtype=torch.uint8)

    def summed(self, packed: Tensor) -> Tensor:
        """Return what comes back of the rows of all groups ``(groups, n * bits / 8)``, ``(n * result_bits / 8,)``."""
        if packed.device.type == "cpu" and packed.stride(1) == 1 and self.result_bits <= 8:
            count = packed.shape[1] * 8 // self.bits
            result = torch.empty(count * self.result_bits // 8, dtype=torch.uint8)
            is_mean = int(self.combine is Combine.MEAN)
            place = packed.data_ptr(), packed.stride(0), self.groups, count
            _sum_levels(*place, self.bits, self.limit, is_mean, self.result_bits, result.data_ptr())
            return result
        parts = []
        for shift in range(0, 8, self.bits):
            fields = (packed >> shift) & (2**self.bits - 1)
            parts.append(fields.sum(0, dtype=torch.int32))
        total = torch.cat(parts)
        # A sign of 0 or 1 is a level of -1 or 1, and others have `limit` added.
        total = 2 * total - self.groups if self.bits == 1 else total - self.groups * self.limit
        if self.combine is Combine.MEAN:
            total += self.groups * self.limit
        else:
            total = (total > 0).to(torch.int32) if self.result_bits == 1 else total.sign() + 1
        return _joined(total[None], self.result_bits)[0]

    def unpack_into(self, packed: Tensor, numbers: Tensor) -> None:
        """Put the updates of rows of what came back into ``(R, n)`` numbers: -1, 0 and 1, or means between."""
        bits, rows, most = self.result_bits, len(packed), self.groups * self.limit
        is_plain = numbers.is_contiguous() and numbers.dtype == torch.float32 and packed.stride(1) == 1
        if packed.device.type == "cpu" and is_plain and bits <= 8:
            how = (1, most, most) if self.combine is Combine.MEAN else (2, 1, 1) if bits == 1 else (1, 1, 1)
            _unpack_levels(packed.data_ptr(), packed.stride(0), *numbers.shape, bits, *how, numbers.data_ptr())
            return
        if bits > 8:
            fields = packed.clone().view(_TYPES[bits])  # at an address that suits them
            if bits == 16:  # torch has few operations on unsigned numbers of two bytes
                fields = fields.to(torch.int32) & 0xFFFF
        else:
            fields = torch.stack([(packed >> shift) & (2**bits - 1) for shift in range(0, 8, bits)], 1).view(rows, -1)
        numbers.copy_(fields)
        if self.combine is Combine.MEAN:
            numbers.sub_(most).div_(most)
        elif bits == 1:
            numbers.mul_(2).sub_(1)
        else:
            numbers.sub_(1)


def levels_of(combine: str, bits: int | None, *, groups: int) -> Levels:
    """Return the levels of what users say; without bits, 4 of ``"p-bit"`` and 1 of all else.

    Raises UsageError where there is no such thing.
    """
    try:
        kind = Combine(combine)
    except ValueError as error:
        expected = ", ".join(repr(str(each)) for each in Combine)
        raise UsageError("Lion's combine", found=repr(combine), expected=expected) from error
    return Levels(kind, (4 if kind is Combine.LEVELS else 1) if bits is None else bits, groups)


def _joined(fields: Tensor, bits: int) -> Tensor:
    """Return rows of fields ``(R, n)`` as bytes."""
    if bits > 8:
        return fields.to(_TYPES[bits]).view(torch.uint8)
    rows, count = fields.shape
    parts = fields.to(torch.uint8).view(rows, 8 // bits, count * bits // 8)
    packed = parts[:, 0].clone()
    for number in range(1, 8 // bits):
        packed |= parts[:, number] << (number * bits)
    return packed
