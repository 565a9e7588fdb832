"""Cosmoflow2018: the TFRecord files of the first CosmoFlow.

``data_raw`` is the bytes of one (N, N, N) float64 cube and ``label_raw`` those of its targets, float64 too. Source:
io_Cosmo.py of NERSC/CosmoFlow, whose first two labels are omega_m and sigma_8; a third one is the spectral index in
some of its data sets and the Hubble constant in others, so that it is only numbered.
"""

from __future__ import annotations

import numpy as np

from voxload.convert.sources.example import Kind
from voxload.convert.sources.examplerecords import (
    Cube,
    Example,
    example_sources,
    first_feature,
    named,
    read_examples,
)
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.sizes import exact_cube_root
from voxload.errors import DataError
from voxload.readers.axes import resolve_axes

_VOXELS, _TARGETS = "data_raw", "label_raw"
_DTYPE = np.dtype("<f8")
_NAMES = ("omega_m", "sigma_8")


class Cosmoflow2018:
    """Records of the first CosmoFlow; checksums are compared as those of MLPerf's files are."""

    name = "CosmoFlow 2018 TFRecord"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the first record begins with ``data_raw`` or ``label_raw``, byte strings."""
        first = first_feature(probe)
        return first is not None and first.name in {_VOXELS, _TARGETS} and first.kind is Kind.BYTES

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return one cube for each record; raises DataError when one is damaged or something else."""

        def cube_of(subject: str, example: Example) -> Cube:
            count, rest = divmod(example.voxels.length, _DTYPE.itemsize)
            extent = None if rest else exact_cube_root(count)
            if extent is None:
                found = f"{example.voxels.length} bytes in {_VOXELS!r}"
                raise DataError(subject, found=found, expected=f"those of a cube of {_DTYPE.name}")
            order = resolve_axes(subject, ndim=3, given=hints.axes, declared="DHW")
            return Cube((extent,) * 3, order, _DTYPE, named(_NAMES, _labels(subject, example)))

        examples = read_examples(probe, voxels=_VOXELS, targets=_TARGETS)
        return example_sources(probe, examples, cube_of, dataset=_VOXELS)


def _labels(subject: str, example: Example) -> tuple[float, ...]:
    strings = example.targets.strings
    content = strings[0].content if len(strings) == 1 else None
    if content is None or len(content) % _DTYPE.itemsize:
        lengths = [string.length for string in strings]
        raise DataError(
            subject, found=f"byte strings of {lengths} bytes in {_TARGETS!r}", expected="one of a few float64"
        )
    return tuple(float(value) for value in np.frombuffer(content, _DTYPE))
