"""Hdf5Writer: one chunked HDF5 file a sample."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from voxload.atomic import remove
from voxload.convert.manifest import ATTRIBUTE, AXES, Manifest
from voxload.convert.trap import TrappedFile
from voxload.convert.writer import publish, temporary_name, writing
from voxload.geometry import Box
from voxload.readers.protocol import Volume

TARGETS = "targets"
"""Name of the dataset that holds the targets; its attribute ``names`` says which is which."""


class Hdf5Writer:
    """Writes one file; see the Writer contract.

    Integers are shuffled and compressed with gzip level 1, which every HDF5 library reads. Floats are not
    compressed: on density fields gzip saves a fifth and makes reading fourteen times slower. Every chunk has a
    Fletcher-32 checksum.

    An HDF5 file that was killed while it grew may be beyond repair, so a sample that was not complete is
    started again.

    Parameters
    ----------
    final
        The sample's final path.
    manifest
        What is written.
    """

    def __init__(self, final: Path, manifest: Manifest) -> None:
        self._final = final
        self._manifest = manifest
        self._temporary = temporary_name(final)
        remove(self._temporary)
        self._sink = TrappedFile(self._temporary)
        self._file = h5py.File(self._sink, "w")
        try:
            self._dataset = self._create()
        except BaseException:
            self.discard()
            raise

    @classmethod
    @contextmanager
    def open(cls, final: Path, manifest: Manifest) -> Iterator[Hdf5Writer]:
        """Start the sample; an exception removes what was written."""
        with writing(final):
            writer = cls(final, manifest)
        try:
            yield writer
        except BaseException:
            writer.discard()
            raise

    def has(self, unit: Box) -> bool:  # noqa: ARG002 - the contract's signature
        """Return False: a sample is always started again."""
        return False

    def write(self, unit: Box, block: Volume) -> None:
        """Write the chunks of `unit`."""
        with writing(self._final):
            self._dataset[(slice(None), *unit.slices)] = block
            self._sink.check()

    def commit(self) -> int:
        """Give the sample its manifest and its final name."""
        with writing(self._final):
            self._file.flush()
            size = int(self._dataset.id.get_storage_size())
            complete = dataclasses.replace(self._manifest, stored_bytes=size)
            self._file.attrs[ATTRIBUTE] = json.dumps(complete.to_json())
            self._file.close()
            self._sink.check()
            self._sink.close()
            publish(self._temporary, self._final)
        return size

    def discard(self) -> None:
        """Remove what was written."""
        self._file.close()
        self._sink.close()
        remove(self._temporary)

    def _create(self) -> h5py.Dataset:
        dtype = np.dtype(self._manifest.dtype)
        compression = {} if dtype.kind == "f" else {"shuffle": True, "compression": "gzip", "compression_opts": 1}
        dataset = self._file.create_dataset(
            self._manifest.dataset,
            shape=self._manifest.shape,
            dtype=dtype,
            chunks=self._manifest.chunks,
            fletcher32=True,
            **compression,
        )
        for dimension, name in zip(dataset.dims, AXES.lower(), strict=True):
            dimension.label = name
        targets = self._manifest.targets
        if targets:
            stored = self._file.create_dataset(TARGETS, data=np.array(list(targets.values()), dtype="<f8"))
            stored.attrs["names"] = list(targets)
        return dataset
