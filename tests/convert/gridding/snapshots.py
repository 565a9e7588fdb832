"""Writers of snapshots, from the published layouts alone, and a reference for the grid they give."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Types = dict[int, tuple[Array, Array | float]]
"""Particle type to positions (n, 3) and masses: one for all, or one each."""


def write_hdf5(path: Path, types: Types, *, box: object = 8.0, part: tuple[int, int] = (0, 1), **header: Any) -> Path:
    """Write (one part of) a snapshot as Gadget does in HDF5: every `part`[1]-th particle from `part`[0] on."""
    with h5py.File(path, "w") as file:
        counts = {kind: len(positions[part[0] :: part[1]]) for kind, (positions, _) in types.items()}
        facts = {
            "NumPart_ThisFile": np.array([counts.get(kind, 0) for kind in range(6)], "<i4"),
            "NumPart_Total": np.array([len(types[kind][0]) if kind in types else 0 for kind in range(6)], "<u4"),
            "NumPart_Total_HighWord": np.zeros(6, "<u4"),
            "MassTable": np.array([float(np.ravel(m)[0]) if np.ndim(m) == 0 else 0.0 for m in _masses(types)]),
            "NumFilesPerSnapshot": part[1],
            "BoxSize": box,
            "Redshift": 0.5,
            "Time": 1 / 1.5,
            **header,
        }
        file.create_group("Header").attrs.update({name: fact for name, fact in facts.items() if fact is not None})
        for kind, (positions, masses) in types.items():
            if counts[kind]:
                file[f"PartType{kind}/Coordinates"] = positions[part[0] :: part[1]]
                file[f"PartType{kind}/ParticleIDs"] = np.arange(counts[kind])
                if np.ndim(masses):
                    file[f"PartType{kind}/Masses"] = np.asarray(masses)[part[0] :: part[1]]
    return path


def _masses(types: Types) -> list[Array | float]:
    return [types[kind][1] if kind in types else 0.0 for kind in range(6)]


def write_binary(
    path: Path, types: Types, *, order: str = "<", labelled: bool = False, part: tuple[int, int] = (0, 1), **facts: Any
) -> Path:
    """Write (one part of) a snapshot as Gadget-2 does, format 1, or format 2 with labels; dtypes as the arrays have."""
    cut = {kind: positions[part[0] :: part[1]] for kind, (positions, _) in types.items()}
    kinds = sorted(cut)
    header = bytearray(256)
    values: dict[int, tuple[str, list[Any]]] = {
        0: ("6i", [len(cut.get(kind, ())) for kind in range(6)]),
        24: ("6d", [float(m) if np.ndim(m) == 0 else 0.0 for m in _masses(types)]),
        72: ("2d", [1 / 1.5, facts.get("redshift", 0.5)]),
        96: ("6I", [len(types[kind][0]) if kind in types else 0 for kind in range(6)]),
        124: ("i", [facts.get("files", part[1])]),
        128: ("d", [facts.get("box", 8.0)]),
    }
    for offset, (kind, numbers) in values.items():
        struct.pack_into(order + kind, header, offset, *numbers)
    positions = np.concatenate([cut[kind] for kind in kinds])
    own = [np.asarray(types[kind][1])[part[0] :: part[1]] for kind in kinds if np.ndim(types[kind][1])]
    blocks = [
        ("HEAD", bytes(header)),
        ("POS ", _bytes(positions, order)),
        ("VEL ", _bytes(np.full_like(positions, 7), order)),
        ("ID  ", _bytes(np.arange(len(positions), dtype="u4"), order)),
        *([("MASS", _bytes(np.concatenate(own), order))] if own else []),
    ]
    path.write_bytes(b"".join(_framed(label, content, order, labelled=labelled) for label, content in blocks))
    return path


def _bytes(values: Array, order: str) -> bytes:
    return values.astype(f"{order}{values.dtype.kind}{values.dtype.itemsize}").tobytes()


def _framed(label: str, content: bytes, order: str, *, labelled: bool) -> bytes:
    mark = struct.pack(order + "I", len(content))
    name = struct.pack(order + "I4sII", 8, label.encode(), len(content) + 8, 8) if labelled else b""
    return name + mark + content + mark


def coordinate_particles(shape: Sequence[int], box: Sequence[float], dtype: str = "<f4") -> tuple[Array, Array, Array]:
    """Return shuffled particles at the middle of every cell, with its number as mass; and the numbers (1, D, H, W)."""
    volume = np.arange(np.prod(shape), dtype=np.float32).reshape(tuple(shape))
    cells = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 3)
    places = (cells + 0.5) * np.array(box) / np.array(shape)
    turn = np.random.default_rng(0).permutation(len(places))
    return places[turn].astype(dtype), volume.reshape(-1)[turn].astype(dtype), volume[np.newaxis]


def spline(distance: Array, order: int) -> Array:
    """Return the B-spline of an order at distances in cells, from its definition piece by piece."""
    s = np.abs(distance)
    pieces: dict[int, Array] = {
        1: ((distance > -0.5) & (distance <= 0.5)).astype(float),
        2: np.clip(1 - s, 0, None),
        3: np.where(s < 0.5, 0.75 - s**2, 0.5 * np.clip(1.5 - s, 0, None) ** 2),
        4: np.where(s < 1, 4 - 6 * s**2 + 3 * s**3, np.clip(2 - s, 0, None) ** 3) / 6,
    }
    return pieces[order]


def reference(positions: Array, masses: Array, shape: Sequence[int], *, cells: Sequence[float], order: int) -> Array:
    """Return the grid by the kernel's definition: every particle to all points up to three cells away."""
    grid = np.zeros(tuple(shape))
    places = positions.astype(float) * np.array(cells) - 0.5
    steps = np.stack(np.meshgrid(*[np.arange(-3, 4)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    for step in steps:
        points = np.floor(places).astype(int) + step
        weights = spline(points - places, order).prod(axis=1)
        np.add.at(grid, tuple((points % np.array(shape)).T), weights * masses)
    return grid
