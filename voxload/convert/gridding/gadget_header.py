"""Framing: which of the binary layouts of Gadget a file has, and its header of 256 bytes.

Source: User guide for GADGET-2, section 6, table 4 "Fields in the file header".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from voxload.convert.gridding.gadget import GadgetHeader
from voxload.convert.sources.probe import Probe
from voxload.errors import DataError

_HEADER_BYTES = 256
_LABEL_BYTES = 8
_HIGH = 2**32
_FIELDS = {
    "npart": ("i4", 6, 0),
    "mass": ("f8", 6, 24),
    "redshift": ("f8", 1, 80),
    "npart_total": ("u4", 6, 96),
    "num_files": ("i4", 1, 124),
    "box_size": ("f8", 1, 128),
    "npart_total_high": ("u4", 6, 168),
}
"""Type, number and offset of what is needed of the header."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How blocks are framed."""

    byte_order: str
    """``<`` or ``>``."""
    is_labelled: bool
    """Whether a record with its label comes before each block, as in format 2."""

    @property
    def header_offset(self) -> int:
        """Bytes before the header's own."""
        return 20 if self.is_labelled else 4

    @property
    def first_block(self) -> int:
        """Offset of what follows the header."""
        return self.header_offset + _HEADER_BYTES + 4

    def fits(self, head: bytes) -> bool:
        """Tell whether a file that begins with `head` has a header framed like this."""
        start = self.header_offset
        marks = [(start - 4, _HEADER_BYTES), (start + _HEADER_BYTES, _HEADER_BYTES)]
        marks += [(0, _LABEL_BYTES), (12, _LABEL_BYTES)] if self.is_labelled else []
        is_marked = all(head[at : at + 4] == struct.pack(f"{self.byte_order}I", value) for at, value in marks)
        return is_marked and (not self.is_labelled or head[4:8] == b"HEAD")


def framing_of(head: bytes) -> Framing | None:
    """Return how a file that begins with `head` frames its blocks; None for no binary Gadget file."""
    known = (Framing(order, is_labelled) for order in "<>" for is_labelled in (False, True))
    return next((framing for framing in known if framing.fits(head)), None)


def header_of(path: Path, probe: Probe | None = None) -> GadgetHeader | None:
    """Return the header of a binary snapshot; None of another file.

    Other codes write a first record of 256 bytes too: without a label, numbers that make no header are no snapshot;
    with one, they are a DataError.
    """
    head = (probe or Probe(path)).head
    framing = framing_of(head)
    if framing is None:
        return None
    facts = _facts(head, framing)
    try:
        return GadgetHeader(
            path,
            counts=tuple(facts["npart"]),
            totals=tuple(
                low + _HIGH * high for low, high in zip(facts["npart_total"], facts["npart_total_high"], strict=True)
            ),
            masses=tuple(facts["mass"]),
            box=(facts["box_size"],) * 3,
            redshift=facts["redshift"],
            files=facts["num_files"] or 1,  # Gadget-1 writes 0 for a single file
        )
    except DataError:
        if framing.is_labelled:
            raise
        return None


def _facts(head: bytes, framing: Framing) -> dict[str, Any]:
    found = {}
    for name, (kind, count, offset) in _FIELDS.items():
        dtype = np.dtype(f"{framing.byte_order}{kind}")
        values = np.frombuffer(head, dtype, count, framing.header_offset + offset).tolist()
        found[name] = values if count > 1 else values[0]
    return found
