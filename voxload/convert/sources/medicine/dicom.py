"""DICOM: series of slices, a file each, of computed tomography, magnetic resonance and positron emission tomography.

Columns are W, rows H, and slices D, in the order of their places along the normal of their planes, as ITK has them. The
slices of a series lie in one folder, or in it and those below. Headers are read by pydicom, and pixels by position, or
by pydicom's decoders where they are compressed. Read `headers` first, then `slices`,
`series` and `frames`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from voxload.convert.sources.hints import Hints
from voxload.convert.sources.medicine.frames import COPIES, read_frame
from voxload.convert.sources.medicine.headers import read_header
from voxload.convert.sources.medicine.images import geometry
from voxload.convert.sources.medicine.series import Series, gathered, is_dicom
from voxload.convert.sources.names import IMAGE
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import RawCube, ReadInto, Source
from voxload.geometry import Box
from voxload.readers.axes import resolve_axes
from voxload.readers.faults import translated
from voxload.readers.protocol import Volume


@dataclass(frozen=True, slots=True)
class DicomSeries:
    """One series."""

    cube: RawCube
    """Its description."""
    uid: str
    """SeriesInstanceUID, which no other volume may have."""
    series: Series
    """Its slices."""

    def describe(self) -> RawCube:
        """Return what is known of the cube."""
        return self.cube

    @contextmanager
    def open(self) -> Iterator[ReadInto]:
        """Yield the function that reads; the files of the slices are opened one by one."""
        yield self._read

    def _read(self, box: Box, out: Volume) -> None:
        target, stored = self.cube.order.view(out), self.cube.order.box(box, len(out))
        first, rows, columns = stored.slices
        for piece, plane in zip(self.series.slices[first], target, strict=True):
            found = read_frame(piece, rows, columns)
            if self.series.is_scaled:
                with translated(f"{piece.path}"):
                    piece.scaling(found, plane)
            else:
                np.copyto(plane, found)


class Dicom:
    """DICOM series of slices, uncompressed or compressed."""

    name = "DICOM"
    is_generic = False

    def claims(self, probe: Probe) -> bool:
        """Tell whether the file has the signature `DICM` behind 128 bytes."""
        return is_dicom(probe)

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the volume of the file's series; none of a file that is no image, such as a report.

        Voxels keep their type, unless a header scales them: then they are float32, or float64 where float32 does not
        hold every stored number exactly.

        Raises
        ------
        UsageError
            When the series is one of colour, of several frames a file, or in a compression that nothing decodes, or
            its folder holds slices of another one.
        DataError
            When slices are missing or make no volume, or a file is damaged.
        """
        header = read_header(probe.path)
        if header is None:
            return ()
        with translated(f"{probe.path}"):
            series = Series.of(gathered(header))
        one, order = series.slices[0], resolve_axes(f"{probe.path}", ndim=3, given=hints.axes, declared="DHW")
        pixels = one.shape[0] * one.shape[1]
        is_plain = all(piece.is_plain for piece in series.slices)
        encoded = 0 if is_plain else 2 * max(piece.encoded_bytes for piece in series.slices)
        cube = RawCube(
            probe.path,
            IMAGE,
            shape=(len(series.slices), *one.shape),
            order=order,
            dtype=series.dtype,
            scratch_bytes=encoded + one.plane_bytes * (2 if is_plain else COPIES) + 8 * pixels * series.is_scaled,
            sample=".",
            is_sequential=not is_plain,
            companions=tuple(piece.path for piece in series.slices if piece.path != probe.path),
            attributes={
                "modality": header.text("modality"),
                "series_instance_uid": header.series,
                "frame_of_reference_uid": one.frame,
                "image_position": list(one.position),
                "image_orientation": list(one.orientation),
                "pixel_spacing": list(one.pixel_spacing),
            },
            **geometry(order, series.affine, series.steps),
        )
        return (DicomSeries(cube, header.series, series),)
