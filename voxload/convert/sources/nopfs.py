"""NopfsRaw: the headerless samples that NoPFS reads of CosmoFlow.

Four float32 targets, then (4, N, N, N) int16 counts, redshift first. Source: CosmoFlowBackend.h of NoPFS.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from voxload.convert.sources.flat import FlatSource, describe_flat
from voxload.convert.sources.hdf5targets import COSMOLOGY
from voxload.convert.sources.headerless import headerless_file
from voxload.convert.sources.hints import Headerless, Hints
from voxload.convert.sources.mlperf import CHANNELS
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.sizes import exact_cube_root, has_signature

_LABELS = struct.Struct("<4f")
_DTYPE = "<i2"


class NopfsRaw:
    """Samples of NoPFS: nothing in them but their exact size and the targets' plausibility tells what they are."""

    name = "NoPFS raw binary"
    is_generic = False
    is_headerless = True
    """Whether the caller may say more of a file with --shape, --dtype and --order."""

    def claims(self, probe: Probe) -> bool:
        """Tell whether a ``.bin`` file has exactly the size of a sample, and begins with four normal numbers."""
        if probe.path.suffix != ".bin" or _extent(probe.size) is None or has_signature(probe):
            return False
        labels = np.array(_LABELS.unpack_from(probe.head), dtype="f4")
        # Small integers, such as a Fortran record marker or a count, are subnormal numbers when taken for floats.
        is_normal = (labels == 0) | (np.abs(labels) >= np.finfo("f4").smallest_normal)
        return bool((np.isfinite(labels) & is_normal).all())

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one sub-cube."""
        extent = _extent(probe.size) or 1
        facts = Headerless((CHANNELS, *(extent,) * 3), _DTYPE, header_bytes=_LABELS.size)
        file = headerless_file(probe.path, facts, hints, declared="CDHW")
        targets = dict(zip(COSMOLOGY, _LABELS.unpack_from(probe.head), strict=True))
        return (FlatSource(replace(describe_flat(file), targets=targets), file),)


def _extent(size: int) -> int | None:
    """Return the extent of the sub-cube in a file of so many bytes, if there is one."""
    count, rest = divmod(size - _LABELS.size, CHANNELS * np.dtype(_DTYPE).itemsize)
    return None if rest else exact_cube_root(count)
