"""Media: what kinds of members are volumes, each with what its header says and a library that decodes it."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.errors import UsageError
from voxload.readers.faults import translated
from voxload.readers.flat.formats import npy_layout
from voxload.readers.shards.clips import ClipHeader, clip_frames, clip_header
from voxload.readers.shards.pictures import picture, picture_header

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Header:
    """What a member says of itself."""

    shape: tuple[int, ...]
    """Extents once decoded, in the order of the axes."""
    dtype: np.dtype[Any]
    axes: str
    """Slowest first; time steps of a clip are D."""
    codec: str
    """In words."""
    parsed: Any = None
    """What else decoding these very bytes needs."""


@dataclass(frozen=True, slots=True)
class Medium:
    """One kind of members."""

    header: Callable[[bytes, str], Header]
    """Takes the bytes and a subject for messages; decodes nothing. Raises DataError at bytes that are none."""
    decode: Callable[[bytes, str, range, Any], Array]
    """Returns all of a picture, or some of the frames of a clip, given what was parsed of these bytes, or None; raises
    DataError."""
    is_brief: bool = True
    """Whether the first bytes say it all."""


def _picture(data: bytes, subject: str) -> Header:
    found = picture_header(data, subject)
    axes = "HW" if found.channels == 1 else "HWC"
    shape = (found.height, found.width, found.channels)[: len(axes)]
    return Header(shape, found.dtype, axes, found.kind, found)


def _clip(data: bytes, subject: str) -> Header:
    found: ClipHeader = clip_header(data, subject)
    return Header(found.shape, np.dtype(np.uint8), "DHWC", found.codec, found)


def _array(data: bytes, subject: str) -> Header:
    with translated(subject):
        layout = npy_layout(io.BytesIO(data))
    axes = {2: "HW", 3: "DHW"}.get(len(layout.shape), "")
    return Header(layout.shape, layout.dtype, axes, "npy")


def _loaded(data: bytes, subject: str) -> Array:
    with translated(subject):
        found: Array = np.load(io.BytesIO(data), allow_pickle=False)
    return found


_PICTURE = Medium(_picture, lambda data, subject, _, parsed: picture(data, subject, parsed))
_CLIP = Medium(_clip, clip_frames, is_brief=False)
_MEDIA = {
    **dict.fromkeys(("jpg", "jpeg", "png"), _PICTURE),
    "npy": Medium(_array, lambda data, subject, *_: _loaded(data, subject)),
    **dict.fromkeys(("mp4", "avi", "mkv", "mov", "webm"), _CLIP),
}
ARRAY = "npy"
"""Extension of arrays, which are read by boxes, as they lie, where the archive is a file."""


def kind_of(extension: str) -> str:
    """Return the last part of an extension, which says what a member is: ``png`` of ``seg.png``."""
    return extension.rpartition(".")[2].lower()


def medium_of(extension: str, subject: str) -> Medium:
    """Return how members of an extension are decoded; raises UsageError where they are no volumes."""
    found = _MEDIA.get(kind_of(extension))
    if found is None:
        raise UsageError(subject, found=f"a member {extension!r}", expected="a JPEG, a PNG, a video or an npy array")
    return found


def is_volume(extension: str) -> bool:
    """Tell whether members of an extension are volumes."""
    return kind_of(extension) in _MEDIA
