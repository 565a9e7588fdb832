"""Patches: changes of stored bytes, each a fault that storage or a writer can leave behind."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import h5py

from tests.support.damage.volumes import DATASET

INDEX_ENTRY = struct.Struct("<2Q")
"""Offset and length of an inner chunk in a shard's index."""
_CRC = struct.Struct("<I")
_KEY = struct.Struct("<2I4Q")
_ADDRESS = struct.Struct("<Q")


def flip(path: Path, place: int, bit: int = 0) -> None:
    """Flip one bit of the byte at `place`; a negative place counts from the end."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def become_folder(path: Path) -> None:
    """Put a folder in a file's place."""
    path.unlink()
    path.mkdir()


def cut(path: Path, keep: float) -> None:
    """Keep the first part of a file."""
    os.truncate(path, int(path.stat().st_size * keep))


def edit(path: Path, old: str, new: str) -> None:
    """Replace text in a metadata document."""
    text = path.read_text()
    if old not in text:
        raise ValueError(f"no {old!r} in {text}")
    path.write_text(text.replace(old, new))


def stored_in_hdf5(path: Path, start: tuple[int, ...]) -> bytes:
    """Return the chunk that begins at the voxel `start`, as stored."""
    with h5py.File(path) as file:
        return bytes(file[DATASET].id.read_direct_chunk(start)[1])


def store_in_hdf5(path: Path, start: tuple[int, ...], data: bytes) -> None:
    """Store `data` as the chunk that begins at the voxel `start`, whatever they are."""
    with h5py.File(path, "r+") as file:
        file[DATASET].id.write_direct_chunk(start, data)


def flip_in_hdf5(path: Path, start: tuple[int, ...], place: int, bit: int = 0) -> None:
    """Flip one bit of a chunk as stored; a negative place counts from its end."""
    with h5py.File(path) as file:
        found = file[DATASET].id.get_chunk_info_by_coord(start)
    flip(path, found.byte_offset + place % found.size, bit)


def point_in_hdf5(path: Path, start: tuple[int, ...], *, offset: int | None = None, size: int | None = None) -> None:
    """Let the entry of a chunk in a version 1 B-tree say another offset or size; such nodes have no checksum.

    Source: HDF5 File Format Specification 3.0, section III.A.1 (version 1 B-trees): a key of stored size, filter
    mask and the chunk's first element, one axis more than the dataset has, then the address.
    """
    with h5py.File(path) as file:
        found = file[DATASET].id.get_chunk_info_by_coord(start)
    old = _entry(start, found.size, found.filter_mask, found.byte_offset)
    content = path.read_bytes()
    if content.count(old) != 1:
        raise ValueError(f"{content.count(old)} entries for the chunk at {start}")
    offset, size = found.byte_offset if offset is None else offset, found.size if size is None else size
    path.write_bytes(content.replace(old, _entry(start, size, found.filter_mask, offset)))


def _entry(start: tuple[int, ...], size: int, mask: int, offset: int) -> bytes:
    return _KEY.pack(size, mask, *start, 0) + _ADDRESS.pack(offset)


def change_entry(path: Path, count: int, inner: int, change: Callable[[int, int], tuple[int, int]]) -> None:
    """Change offset and length of one inner chunk of a shard of `count`, and write the index's checksum anew."""
    content = bytearray(path.read_bytes())
    index = len(content) - count * INDEX_ENTRY.size - _CRC.size
    place = index + inner * INDEX_ENTRY.size
    INDEX_ENTRY.pack_into(content, place, *change(*INDEX_ENTRY.unpack_from(content, place)))
    _CRC.pack_into(content, len(content) - _CRC.size, google_crc32c.value(bytes(content[index : -_CRC.size])))
    path.write_bytes(content)


def stored_in_shard(path: Path, count: int, inner: int) -> bytes:
    """Return an inner chunk as stored."""
    content = path.read_bytes()
    place = len(content) - count * INDEX_ENTRY.size - _CRC.size + inner * INDEX_ENTRY.size
    offset, length = INDEX_ENTRY.unpack_from(content, place)
    return content[offset : offset + length]


def store_in_shard(path: Path, count: int, inner: int, data: bytes) -> None:
    """Put `data` in front of the index, and let an inner chunk's entry point to them."""
    content = path.read_bytes()
    index = len(content) - count * INDEX_ENTRY.size - _CRC.size
    path.write_bytes(content[:index] + data + content[index:])
    change_entry(path, count, inner, lambda _offset, _length: (index, len(data)))


def forget_in_hdf5(path: Path, start: tuple[int, ...]) -> None:
    """Write a file anew with the same data, but never the chunk that begins at the voxel `start`."""
    with h5py.File(path) as file:
        dataset = file[DATASET]
        plist, kind, shape = dataset.id.get_create_plist(), dataset.id.get_type(), dataset.shape
        chunks = {
            info.chunk_offset: dataset.id.read_direct_chunk(info.chunk_offset)
            for info in map(dataset.id.get_chunk_info, range(dataset.id.get_num_chunks()))
        }
        libver = file.libver
    with h5py.File(path, "w", libver=libver) as file:
        fresh = h5py.h5d.create(file.id, DATASET.encode(), kind, h5py.h5s.create_simple(shape), plist)
        for place, (mask, data) in chunks.items():
            if place != start:
                fresh.write_direct_chunk(place, data, mask)


def flip_table_in_hdf5(path: Path) -> None:
    """Flip one bit of the table of chunks of a file of the latest version: a fixed array's data block.

    Source: HDF5 File Format Specification 3.0, section VII.C (fixed array index): signatures FAHD and FADB.
    """
    content = path.read_bytes()
    flip(path, content.index(b"FADB") + 24)
