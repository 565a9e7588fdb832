"""ZarrReader: boxes of a Zarr array, through zarr-python."""

from __future__ import annotations

import time
from dataclasses import replace
from math import prod
from typing import Any

import numcodecs.errors
import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, Endian, ShardingCodec, ShardingCodecIndexLocation
from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata
from zarr.errors import UnknownCodecError

from voxload.errors import DataError, NotFoundError, UsageError
from voxload.files.limits import CHUNK_TABLE
from voxload.geometry import Box
from voxload.readers.axes import OTHER_AXES, AxisOrder, Names, declared_or_usual, resolve_axes
from voxload.readers.chunks.chunked import Fetched
from voxload.readers.chunks.storedchunks import StoredChunks, grid_of
from voxload.readers.chunks.verified import policy_of
from voxload.readers.faults import naming_chunk, translated
from voxload.readers.foreign import not_multiscale
from voxload.readers.generation import Generation
from voxload.readers.maderead import Seen
from voxload.readers.protocol import (
    Location,
    Missing,
    ReadCost,
    Volume,
    VolumeInfo,
    check_box,
    check_request,
    check_volume,
    copy_cast,
)
from voxload.readers.remote import RemoteStore, Traffic
from voxload.readers.store import Store, open_store
from voxload.readers.zarr.checks import (
    ChunkHeaders,
    dimension_names,
    local_arrays,
    naming_types,
    packing,
)
from voxload.readers.zarr.chunkindex import ChunkIndex, Layout, Place
from voxload.readers.zarr.generations import Generations
from voxload.readers.zarr.hierarchy import member, open_node, values, volume_names
from voxload.readers.zarr.multiscale import level_of, multiscale_of
from voxload.readers.zarr.route import NativeRoute, find_route
from voxload.readers.zarr.shardindex import ShardLayout
from voxload.text import listed

_UNREACHABLE = 2**48
"""Bytes of a chunk that no machine can hold, and that strides in 64 bits are far from."""


class ZarrReader:
    """Reads boxes of one Zarr array; see the Reader contract.

    Attributes
    ----------
    array
        The array as zarr-python sees it.
    order
        Its axes.
    store
        Where its objects are.
    index
        Which chunks are stored.
    missing
        What to do about those that are not.
    route
        How its chunks can be read without zarr-python, or in words why not.

    Parameters
    ----------
    location
        Folder or URL, and the array's name in the group; an empty name means the only volume there.
    missing
        What to do about chunks that are not there.

    Raises
    ------
    NotFoundError
        No such hierarchy or array; the message lists the arrays there are.
    UsageError
        Axes without names, an element type that is no number, numbers that are packed by CF attributes, or shards whose
        index cannot be checked.
    DataError
        Damaged metadata, or an array that differs from its catalogue row.
    """

    def __init__(self, location: Location, missing: Missing) -> None:
        self.missing = Missing.parse(missing)
        since = time.time_ns()
        with translated(str(location)):
            self.store = open_store(location.path)
            self.array, names, levels = _open_array(location, self.store)
            if self.array.metadata.fill_value is not None:  # format 2 may name none
                self.missing = policy_of(location, self.missing)
            declared = None if location.axes else declared_or_usual(str(location), names)
            order = resolve_axes(
                str(location), ndim=self.array.ndim, given=location.axes, declared=declared, has_lead=True
            )
            self.order = order
            self.index = chunk_index(self.array, location, self.store)
            info = replace(_describe(self.array, order, self.index.layout, location), levels=levels)
            self.route: NativeRoute | str = find_route(self.array, info.dtype)
            reason = f": {self.route}" if isinstance(self.route, str) else ""
            self._info = replace(info, route=f"zarr-python{reason}")
            self._headers = ChunkHeaders(location, info.codecs)
            self._generations = Generations(self.array, self.index, self.store, since=since)
            check_volume(self._info)
            self._info = replace(self._info, packing=packing(self.array, str(location), location.packed))

    def describe(self) -> VolumeInfo:
        """Return what is known of the volume."""
        return self._info

    def cost(self, box: Box) -> ReadCost:
        """Return chunks and bytes of `box`, with the indices of the shards it touches."""
        check_box(self._info, box)
        with translated(str(self._info.location)):
            return self.index.cost(self.order.stored_box(box, self._info.lead))

    def read_into(self, box: Box, out: Volume) -> None:
        """Read `box` into `out`; only its chunks are asked of the store."""
        check_request(self._info, box, out)
        stored = self.order.stored_box(box, self._info.lead)
        with translated(f"{self._info.location}, box {box}"):
            # Looked up under "fill" too: a folder or an empty file in place of a chunk is damage, not absence.
            absent = self.index.first_missing(stored)
            if absent is not None and self.missing is Missing.ERROR:
                raise absent_error(*absent, self._info.location)
            self._headers.check(self.index, self.store, stored)
            unit = self.index.layout.unit
            with naming_chunk(str(self._info.location), stored, unit, lambda part: values(self.array, part.slices)):
                data = np.asarray(values(self.array, stored.slices))
            if data.shape != stored.shape:
                remedy = "copy or convert it again"
                raise DataError(
                    str(self._info.location), found=f"shape {data.shape}", expected=f"{stored.shape}", remedy=remedy
                )
            copy_cast(self.order.stored_view(out, box, self._info.lead), data)

    def generation(self, box: Box) -> Generation | None:
        """See Dated; behind a URL by a request for each object."""
        return self._generations.of(self.order.stored_box(box, self._info.lead))

    def seen(self) -> Seen | None:
        """See Generations."""
        return self._generations.seen()

    def is_outdated(self) -> bool:
        """See Dated; so are arrays whose metadata were written anew."""
        return self._generations.is_outdated()

    @property
    def grid(self) -> Place:
        """Chunks along each axis, in stored axis order; inner ones where the array is sharded."""
        return grid_of(tuple(self.array.shape), self.index.layout.unit)

    def stored_chunks(self) -> StoredChunks:
        """Return the chunks as they are stored now."""
        return library_chunks(self.array, chunk_index(self.array, self._info.location, self.store), self._headers)

    @property
    def traffic(self) -> Traffic | None:
        """What was asked of the storage, since the array was opened; None of local files."""
        return self.store.traffic if isinstance(self.store, RemoteStore) else None

    @property
    def fill_value(self) -> Any:
        """The value of voxels that were never written; format 2 may name none, and means zero as zarr-python does."""
        value = self.array.metadata.fill_value
        return 0 if value is None else value

    def close(self) -> None:
        """Do nothing: zarr-python keeps no file open between reads."""


def chunk_index(array: zarr.Array[Any], location: Location, store: Store) -> ChunkIndex:
    """Return the index of an array's chunks; nothing is read yet."""
    prefix = f"{array.path}/" if array.path else ""

    def key_of(place: Place) -> str:
        return prefix + str(array.metadata.encode_chunk_key(place))

    return ChunkIndex(store, key_of, _layout(array, location))


def absent_error(place: Place, name: str, location: Location) -> DataError:
    """Return the error of a chunk that is not there: zarr-python would hand out the fill value without a word."""
    return DataError(
        f"{location}, chunk {place}: no chunk {name}",
        expected='every chunk stored, or missing="fill" (convert --missing fill) for those never written',
        remedy="copy or convert it again",
    )


def _open_array(location: Location, store: Store) -> tuple[zarr.Array[Any], Names, tuple[str, ...]]:
    """Return the array that `location` names, its axes' names, and the levels of the image that it is chosen from.

    Raises NotFoundError that lists the arrays there are.
    """
    try:
        with naming_types(store, str(location), (location.dataset, "")):
            node = open_node(location.path, store)
            # By name and not from a list: plain web servers cannot list, and a list reads every member's metadata.
            named = member(node, location.dataset) if location.dataset and isinstance(node, zarr.Group) else None
    except (UnknownCodecError, numcodecs.errors.UnknownCodecError) as error:
        raise UsageError(
            str(location), found=str(error), expected="an installed codec", remedy="install the package that has it"
        ) from error
    group = named if isinstance(named, zarr.Group) else node
    image = multiscale_of(group, location) if isinstance(group, zarr.Group) else None
    if isinstance(named, zarr.Array):
        if location.level is not None:
            raise not_multiscale(location)
        is_level = image is not None and location.dataset in image.levels
        return named, image.axes if image is not None and is_level else dimension_names(named), ()
    if isinstance(group, zarr.Group) and image is not None:
        return level_of(group, image, location), image.axes, image.levels
    if location.level is not None:
        raise not_multiscale(location)
    if isinstance(node, zarr.Array):
        if location.dataset:
            raise NotFoundError(
                str(location), found="one array without a name", expected="a group", remedy="leave the dataset name out"
            )
        return node, dimension_names(node), ()
    with naming_types(store, location.path, local_arrays(location.path)):
        volumes = sorted(volume_names(node, location.path, (len(location.axes),))) if location.axes else []
        volumes = volumes or sorted(volume_names(node, location.path))
        only = member(node, volumes[0]) if not location.dataset and len(volumes) == 1 else None
    if isinstance(only, zarr.Array):
        return only, dimension_names(only), ()
    raise NotFoundError(
        location.path,
        found=f"no array {location.dataset!r}" if location.dataset else f"{len(volumes)} volumes",
        expected=f"one of {listed(volumes)}" if volumes else "an array of three or four axes",
        remedy="name one of them" if volumes else f"check that it is the right folder, {OTHER_AXES}",
    )


def _check_extents(location: Location, chunk: Place, itemsize: int) -> None:
    """Refuse chunks without voxels, before anything is divided by their extents, and those that no memory holds."""
    if min(chunk, default=1) < 1 or prod(chunk) * itemsize >= _UNREACHABLE:
        remedy = "copy or convert it again: its metadata are damaged"
        expected = "extents of 1 or more that memory can hold"
        raise DataError(f"{location}", found=f"chunks of {chunk}", expected=expected, remedy=remedy)


def _layout(array: zarr.Array[Any], location: Location) -> Layout:
    """Return the pure facts of an array's storage.

    Source: Zarr v3 core specification and the sharding-indexed codec, version 1.0.
    """
    metadata = array.metadata
    itemsize = array.dtype.itemsize
    if isinstance(metadata, ArrayV2Metadata):
        _check_extents(location, tuple(metadata.chunks), itemsize)
        return Layout(tuple(metadata.chunks), itemsize, None)
    codec = metadata.codecs[0]
    outer = tuple(array.shards or array.chunks)
    _check_extents(location, outer, itemsize)
    if not any(isinstance(part, ShardingCodec) for part in metadata.codecs):
        return Layout(outer, itemsize, None)
    is_plain = (
        len(metadata.codecs) == 1
        and isinstance(codec, ShardingCodec)
        and not any(isinstance(part, ShardingCodec) for part in codec.codecs)
        and all(isinstance(part, BytesCodec | Crc32cCodec) for part in codec.index_codecs)
    )
    if not is_plain or not isinstance(codec, ShardingCodec):
        raise UsageError(
            str(location),
            found="nested shards, or shards behind another codec",
            expected="one sharding codec with a bytes and crc32c index",
            remedy="convert it with voxload convert",
        )
    inner = tuple(codec.chunk_shape)
    _check_extents(location, inner, itemsize)
    shard = ShardLayout(
        inner=inner,
        grid=tuple(width // part for width, part in zip(outer, inner, strict=True)),
        at_end=codec.index_location is ShardingCodecIndexLocation.end,
        has_checksum=any(isinstance(part, Crc32cCodec) for part in codec.index_codecs),
    )
    CHUNK_TABLE.check(f"{location}", shard.index_bytes, "the index of a shard")
    return Layout(outer, itemsize, shard)


def _describe(array: zarr.Array[Any], order: AxisOrder, layout: Layout, location: Location) -> VolumeInfo:
    metadata = array.metadata
    samples, steps, _ = order.lead(array.shape)
    return VolumeInfo(
        location=location,
        format=f"Zarr v{metadata.zarr_format}",
        axes=order.axes,
        shape=order.to_volume(array.shape, 1),
        dtype=_stored_dtype(array),
        chunks=order.to_volume(layout.unit, 1),
        shards=order.to_volume(layout.outer, 1) if layout.shard else None,
        codecs=codec_names(metadata),
        samples=samples,
        steps=steps,
    )


def _chunk_codecs(metadata: ArrayV3Metadata) -> tuple[Any, ...]:
    """Return the codecs of a chunk, which in a sharded array are those of the inner chunks."""
    first = metadata.codecs[0]
    return tuple(first.codecs if isinstance(first, ShardingCodec) else metadata.codecs)


def _stored_dtype(array: zarr.Array[Any]) -> np.dtype[Any]:
    """Return the element type in its stored byte order, which format 3 keeps in the bytes codec."""
    dtype = np.dtype(array.dtype)
    if isinstance(array.metadata, ArrayV2Metadata):
        return dtype
    codecs = _chunk_codecs(array.metadata)
    is_big = any(isinstance(codec, BytesCodec) and codec.endian is Endian.big for codec in codecs)
    return dtype.newbyteorder(">") if is_big else dtype


def codec_names(metadata: ArrayV2Metadata | ArrayV3Metadata) -> tuple[str, ...]:
    """Return the names of the codecs of a chunk, the one that was applied last at the end."""
    if isinstance(metadata, ArrayV2Metadata):
        filters = list(metadata.filters or ())
        parts = [*filters, metadata.compressor] if metadata.compressor else filters
        return tuple(_codec_name(part) for part in parts)
    return tuple(_codec_name(part) for part in _chunk_codecs(metadata))


def _codec_name(codec: Any) -> str:
    """Return a codec's registered name with, for blosc, what it runs."""
    data = codec.to_dict() if hasattr(codec, "to_dict") else codec.get_config()
    name = str(data.get("name", data.get("id")))
    details = data.get("configuration", data)
    inner = details.get("cname") if isinstance(details, dict) else None
    return f"{name}({getattr(inner, 'value', inner)})" if inner else name


def library_chunks(array: zarr.Array[Any], index: ChunkIndex, headers: ChunkHeaders) -> StoredChunks:
    """Return the chunks of an array that only zarr-python can decode; inner ones where it is sharded.

    `index` remembers sizes and the indices of shards: a fresh one sees the chunks as they are now.
    """
    unit, shape = index.layout.unit, tuple(array.shape)

    def fetch(place: Place) -> Fetched | None:
        data = index.read(place)
        return None if data is None else Fetched(np.frombuffer(data, np.uint8))

    def decode(place: Place, fetched: Fetched) -> None:
        headers.check_chunk(place, fetched.data.data, len(fetched.data))
        corner = tuple(i * width for i, width in zip(place, unit, strict=True))
        within = Box.whole(unit).shift(corner).intersect(Box.whole(shape))
        if within is not None:
            values(array, within.slices)

    return StoredChunks(grid_of(shape, unit), unit, fetch, decode, index.name)
