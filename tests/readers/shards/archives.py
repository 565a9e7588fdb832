"""Archives to read: pictures, clips and arrays whose pixels are known, written by tarfile, Pillow, PyAV and numpy."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from PIL import Image

Array = npt.NDArray[Any]
HEIGHT, WIDTH, FRAMES = 24, 18, 7
_MODES = {"L": (), "LA": (2,), "RGB": (3,), "RGBA": (4,)}


def pixels(seed: int, mode: str = "RGB") -> Array:
    """Return the pixels of a picture."""
    rng = np.random.default_rng(seed)
    if mode == "I;16":
        return rng.integers(0, 2**16, (HEIGHT, WIDTH)).astype(np.uint16)
    return rng.integers(0, 256, (HEIGHT, WIDTH, *_MODES[mode])).astype(np.uint8)


def png(array: Array) -> bytes:
    """Return a picture without loss."""
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def jpeg(array: Array, **how: Any) -> bytes:
    """Return a picture with loss."""
    file = io.BytesIO()
    Image.fromarray(array).save(file, "JPEG", **how)
    return file.getvalue()


def shown(data: bytes) -> Array:
    """Return the colours of a picture, as Pillow decodes it."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def frames(seed: int) -> Array:
    """Return the pixels of a clip, ``(T, H, W, 3)``."""
    return np.random.default_rng(seed).integers(0, 256, (FRAMES, HEIGHT, WIDTH, 3)).astype(np.uint8)


def clip(array: Array, *, container: str = "matroska", codec: str = "ffv1", pixel: str = "bgr0") -> bytes:
    """Return a clip, without loss unless another codec is named."""
    file = io.BytesIO()
    with av.open(file, mode="w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=5)
        stream.width, stream.height, stream.pix_fmt = array.shape[2], array.shape[1], pixel
        for one in array:
            for packet in stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(one), format="rgb24")):
                output.mux(packet)
        for packet in stream.encode():
            output.mux(packet)
    return file.getvalue()


def npy(array: Array) -> bytes:
    """Return an array as numpy stores it."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(path: Path, members: Mapping[str, bytes] | Iterable[tuple[str, bytes]], *, kind: int = -1) -> Path:
    """Write an archive of these members, in their order."""
    named = members.items() if isinstance(members, Mapping) else members
    with tarfile.open(path, "w", format=tarfile.DEFAULT_FORMAT if kind < 0 else kind) as written:
        for name, data in named:
            header = tarfile.TarInfo(name)
            header.size = len(data)
            written.addfile(header, io.BytesIO(data))
    return path


def birds(path: Path, numbers: Iterable[int]) -> Path:
    """Write an archive of samples: a JPEG, a mask, a class and a document each, and a folder that says nothing."""
    members: list[tuple[str, bytes]] = []
    for number in numbers:
        key = f"birds/{number:04}"
        members += [
            (f"{key}.jpg", jpeg(pixels(number), quality=90)),
            (f"{key}.seg.png", png(pixels(number, "L"))),
            (f"{key}.cls", f"{number % 5}\n".encode()),
            (f"{key}.json", json.dumps({"height": number / 4, "place": [1, number], "name": "a bird"}).encode()),
        ]
    return archive(path, members)
