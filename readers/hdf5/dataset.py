"""SettledDataset: a dataset of a file that is read, of which each thing is asked once."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import h5py
import numpy as np

Filter = tuple[int, str, tuple[int, ...]]
"""Number, name and parameters."""


class SettledDataset(h5py.Dataset):  # type: ignore[misc]
    """What h5py has of a dataset, but asked once: each question takes libhdf5's lock, and some twenty are asked.

    Parameters
    ----------
    identifier
        The dataset, of a file that is open for reading: nothing of it changes while it is open.
    """

    def __init__(self, identifier: h5py.h5d.DatasetID) -> None:
        super().__init__(identifier, readonly=True)

    @cached_property
    def chunks(self) -> tuple[int, ...] | None:
        """Extent of a chunk; None where there are none."""
        found: tuple[int, ...] | None = super().chunks
        return found

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type that h5py has for its elements."""
        found: np.dtype[Any] = super().dtype
        return found

    @cached_property
    def ndim(self) -> int:
        """Axes."""
        return len(self.shape or ())

    @cached_property
    def name(self) -> str | None:
        """Its path in the file."""
        found: str | None = super().name
        return found

    @cached_property
    def creation(self) -> Any:
        """See `creation_of`."""
        return self.id.get_create_plist()

    @cached_property
    def own_filters(self) -> list[Filter]:
        """See `filters_of`."""
        return _filters(self)

    @cached_property
    def labels(self) -> list[str]:
        """Names of its axes, empty ones where they have none."""
        return [h5py.h5ds.get_label(self.id, axis).decode("utf-8", "surrogateescape") for axis in range(self.ndim)]


def creation_of(dataset: h5py.Dataset) -> Any:
    """Return the properties that the dataset was created with."""
    return dataset.creation if isinstance(dataset, SettledDataset) else dataset.id.get_create_plist()


def filters_of(dataset: h5py.Dataset) -> list[Filter]:
    """Return the dataset's filters in the order of writing."""
    return dataset.own_filters if isinstance(dataset, SettledDataset) else _filters(dataset)


def _filters(dataset: h5py.Dataset) -> list[Filter]:
    plist: Any = creation_of(dataset)
    rows = [plist.get_filter(index) for index in range(plist.get_nfilters())]
    return [
        (int(row[0]), row[3].decode(errors="replace").split(";")[0].strip(), tuple(int(value) for value in row[2]))
        for row in rows
    ]
