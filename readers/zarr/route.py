"""Route: whether an array's chunks can be read without zarr-python, and how; pure, from its metadata."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numcodecs
import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata

from voxload.readers.decode.codecs import BLOSC, DEFLATE, GZIP, LZ4_NUMCODECS, ZSTD, Crc32c, Pipeline, Step
from voxload.readers.pasting.pasteplan import ChunkShape

_V2_STEPS: dict[type, Step] = {
    numcodecs.Zlib: DEFLATE,
    numcodecs.GZip: GZIP,
    numcodecs.Zstd: ZSTD,
    numcodecs.Blosc: BLOSC,
    numcodecs.LZ4: LZ4_NUMCODECS,
}
_V3_STEPS: dict[type, Step] = {
    GzipCodec: GZIP,
    ZstdCodec: ZSTD,
    BloscCodec: BLOSC,
    Crc32cCodec: Crc32c(),
}
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class NativeRoute:
    """How to read an array's chunks without zarr-python."""

    shape: ChunkShape
    """How elements lie in a decoded chunk; in an inner one where chunks lie in shards."""
    pipeline: Pipeline
    """How a chunk is decoded."""


def find_route(array: zarr.Array[Any], dtype: np.dtype[Any]) -> NativeRoute | str:
    """Return how to read `array` natively, or the reason, in words, why zarr-python must read it.

    `dtype` is the element type in its stored byte order.
    """
    if dtype.kind not in "biuf" or dtype.itemsize not in _WIDTHS:
        return f"elements of type {dtype}"
    metadata = array.metadata
    return _v2(metadata, dtype) if isinstance(metadata, ArrayV2Metadata) else _v3(metadata, dtype)


def _v2(metadata: ArrayV2Metadata, dtype: np.dtype[Any]) -> NativeRoute | str:
    if metadata.filters:
        return "filters " + ", ".join(part.codec_id for part in metadata.filters)
    chunks = tuple(metadata.chunks)
    turned = tuple(reversed(range(len(chunks)))) if metadata.order == "F" else None
    compressor = metadata.compressor
    if compressor is None:
        return _route(chunks, dtype, turned, ())
    step = _V2_STEPS.get(type(compressor))
    return f"codec {compressor.codec_id}" if step is None else _route(chunks, dtype, turned, (step,))


def _v3(metadata: ArrayV3Metadata, dtype: np.dtype[Any]) -> NativeRoute | str:
    chunks, codecs = tuple(metadata.chunks), tuple(metadata.codecs)
    if len(codecs) == 1 and isinstance(codecs[0], ShardingCodec):
        chunks, codecs = tuple(codecs[0].chunk_shape), tuple(codecs[0].codecs)
    turned = tuple(range(len(chunks)))
    rest: list[Any] = list(codecs)
    while rest and isinstance(rest[0], TransposeCodec):
        turned = tuple(turned[axis] for axis in rest.pop(0).order)
    if not rest or type(rest[0]) is not BytesCodec:
        return f"codec {_name(rest[0])}" if rest else "no codec that makes bytes"
    steps = [_V3_STEPS.get(type(codec)) for codec in rest[1:]]
    for codec, step in zip(rest[1:], steps, strict=True):
        if step is None:
            return f"codec {_name(codec)}"
    known = tuple(step for step in steps if step is not None)
    if sum(step.grows is None for step in known) > 1:
        return "a compressor behind another"
    return _route(chunks, dtype, turned, known)


def _route(
    chunks: tuple[int, ...], dtype: np.dtype[Any], turned: tuple[int, ...] | None, steps: tuple[Step, ...]
) -> NativeRoute:
    return NativeRoute(ChunkShape.of(chunks, dtype, turned=turned), Pipeline(steps, prod(chunks) * dtype.itemsize))


def _name(codec: Any) -> str:
    return str(codec.to_dict()["name"])
