"""DICOM series for tests, written by pydicom as scanners write them: a file a slice, in any order of names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import UID, CTImageStorage, ExplicitVRLittleEndian, generate_uid

from tests.laws.source import Array

AXIAL = (1.0, 0, 0, 0, 1.0, 0)
"""Columns to the left, rows to the back: slices from the feet to the head."""
TILTED = tuple(np.linalg.qr([[0.9, 0.2], [-0.3, 0.85], [0.1, -0.4]])[0].T.ravel().tolist())
"""Of a scan whose axes are nobody's."""


def _text(value: float) -> str:
    """Return a number in the 16 letters that DICOM has for one."""
    return f"{round(value, 9):.10g}"


@dataclass
class Study:
    """How slices are written; each of them may be changed before it is."""

    folder: Path
    """Where."""
    orientation: Sequence[float] = AXIAL
    """Directions of columns and rows."""
    pixel_spacing: Sequence[float] = (0.8, 0.7)
    """mm between rows, and between columns."""
    origin: Sequence[float] = (-120.5, 33.25, -700.0)
    """Place of the first voxel, LPS."""
    step: Sequence[float] | None = None
    """From a slice to the next; None for 2.5 mm along the normal."""
    syntax: str = ExplicitVRLittleEndian
    """Transfer syntax."""
    series: str = field(default_factory=generate_uid)
    """SeriesInstanceUID."""
    kind: str = CTImageStorage
    """SOP class."""

    @property
    def steps(self) -> Array:
        """Steps along D, H and W, LPS."""
        across, down = np.reshape(self.orientation, (2, 3))
        step = 2.5 * np.cross(across, down) if self.step is None else np.array(self.step)
        return np.array([step, down * self.pixel_spacing[0], across * self.pixel_spacing[1]])

    def dataset(self, plane: Array, place: int, **values: Any) -> FileDataset:
        """Return one slice; `values` change its elements, None takes one out."""
        meta = FileMetaDataset()
        syntax = UID(self.syntax)
        meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = UID(self.kind), UID(f"1.2.3.{place + 1}")
        meta.TransferSyntaxUID = syntax
        encoding = {"is_implicit_VR": syntax.is_implicit_VR, "is_little_endian": syntax.is_little_endian}
        if syntax.is_private:
            encoding = {"is_implicit_VR": False, "is_little_endian": True}
        found = FileDataset("", {}, file_meta=meta, preamble=bytes(128), **encoding)
        elements: dict[str, Any] = {
            "SOPClassUID": self.kind,
            "SOPInstanceUID": meta.MediaStorageSOPInstanceUID,
            "Modality": "CT",
            "PatientName": "Nobody^At^All",
            "SeriesInstanceUID": self.series,
            "FrameOfReferenceUID": "1.2.3",
            "InstanceNumber": place + 1,
            "ImagePositionPatient": list(map(_text, np.array(self.origin) + place * self.steps[0])),
            "ImageOrientationPatient": list(map(_text, self.orientation)),
            "PixelSpacing": list(map(_text, self.pixel_spacing)),
            "SamplesPerPixel": 1,
            "PhotometricInterpretation": "MONOCHROME2",
            "Rows": plane.shape[0],
            "Columns": plane.shape[1],
            "BitsAllocated": plane.dtype.itemsize * 8,
            "BitsStored": plane.dtype.itemsize * 8,
            "HighBit": plane.dtype.itemsize * 8 - 1,
            "PixelRepresentation": int(plane.dtype.kind == "i"),
        } | values
        for name, value in elements.items():
            if value is not None:
                setattr(found, name, value)
        return found

    def write(
        self, path: str, plane: Array, place: int, *, stream: bytes | bytearray | None = None, **values: Any
    ) -> Path:
        """Write one slice; `stream` are its pixels, compressed."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        found = self.dataset(plane, place, **values)
        big = found.file_meta.TransferSyntaxUID == pydicom.uid.ExplicitVRBigEndian
        pixels = plane.astype(plane.dtype.newbyteorder(">" if big else "<")).tobytes()
        if values.get("Rows", 1) is not None:
            found.PixelData = pixels + bytes(len(pixels) % 2) if stream is None else encapsulate([bytes(stream)])
            found["PixelData"].VR = "OB" if stream is not None or plane.dtype.itemsize == 1 else "OW"
        found.save_as(target, enforce_file_format=True)
        return target

    def write_all(self, volume: Array, **values: Any) -> Path:
        """Write a (D, H, W) volume under names in another order than the slices; return the folder."""
        for place, plane in enumerate(volume):
            self.write(f"IM{place * 7 % len(volume):04d}.dcm", plane, place, **values)
        assert len(list(self.folder.glob("IM*.dcm"))) == len(volume)
        return self.folder
