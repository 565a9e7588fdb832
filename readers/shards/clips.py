"""Clips: videos in a member, which PyAV decodes, frame by frame, from the first one that is wanted or before it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.errors import DataError, UsageError
from voxload.files.limits import FRAME

_CHANNELS = 3


@dataclass(frozen=True, slots=True)
class ClipHeader:
    """What a clip says of itself."""

    shape: tuple[int, int, int, int]
    """Extents (T, H, W, C) once decoded."""
    codec: str
    """In words."""


def clip_header(data: bytes, subject: str) -> ClipHeader:
    """Return what there is of the first video stream; its packets are counted, and none is decoded.

    Raises UsageError where PyAV is not installed, DataError where there is no such stream.
    """
    with _opened(data, subject) as (container, stream):
        height, width = stream.codec_context.height, stream.codec_context.width
        codec = f"{container.format.name.partition(',')[0]}, {stream.codec_context.name}"
        frames = sum(1 for packet in container.demux(stream) if packet.size)
    if frames < 1 or height < 1 or width < 1:
        raise _odd(subject, f"{frames} frames of {height} x {width}")
    FRAME.check(subject, height * width * _CHANNELS, "a frame")
    return ClipHeader((frames, height, width, _CHANNELS), codec)


def clip_frames(data: bytes, subject: str, frames: range, known: ClipHeader | None = None) -> npt.NDArray[np.uint8]:
    """Return some frames, one behind the other, ``(frames, H, W, 3)`` in RGB; raises DataError where one is missing.

    `known` is what `clip_header` said of these bytes, where it was asked.
    """
    known = clip_header(data, subject) if known is None else known
    count, height, width, _ = known.shape
    found = np.empty((len(frames), *known.shape[1:]), np.uint8)
    done = 0
    with _opened(data, subject) as (container, stream):
        for number, frame in enumerate(container.decode(stream)):
            if number >= frames.stop:
                break
            if number < frames.start:
                continue
            pixels = frame.to_ndarray(format="rgb24")
            if pixels.shape != found.shape[1:]:
                raise _odd(subject, f"a frame of {pixels.shape[:2]} in a clip of {height} x {width}")
            found[number - frames.start] = pixels
            done += 1
    if done != len(frames):
        raise _odd(subject, f"{frames.start + done} frames that can be decoded, of {count}")
    return found


@contextmanager
def _opened(data: bytes, subject: str) -> Iterator[tuple[Any, Any]]:
    """Give a container and its first video stream."""
    try:
        import av  # noqa: PLC0415 - of the extra `video`
    except ImportError as error:
        raise UsageError(
            subject, found="a video, and PyAV not installed", expected="both", remedy="pip install voxload[video]"
        ) from error
    try:
        with av.open(io.BytesIO(data), mode="r") as container:
            if not container.streams.video:
                raise _odd(subject, "no video stream")
            stream = container.streams.video[0]
            stream.thread_type, stream.codec_context.thread_count = "NONE", 1  # readers are threads already
            yield container, stream
    except (av.FFmpegError, ValueError) as error:
        raise _odd(subject, str(error)) from error


def _odd(subject: str, found: str) -> DataError:
    return DataError(
        subject, found=found, expected="a whole video", remedy="take the sample out, or write the clip anew"
    )
