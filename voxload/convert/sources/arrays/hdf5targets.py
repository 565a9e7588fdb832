"""Targets in HDF5 files: vectors of parameters and the names of their values."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from voxload.errors import DataError
from voxload.readers.faults import translated
from voxload.readers.hdf5.checks import check_supported
from voxload.readers.hdf5.decoded import read_whole
from voxload.readers.hdf5.file import check_own_file, open_file
from voxload.readers.protocol import Location

COSMOLOGY = ("omega_m", "sigma_8", "n_spec", "h_0")
"""The four parameters of the CosmoFlow simulations, in the order of every ``unitPar``.

Source: the CosmoFlow data sets of NERSC, and MLPerf HPC, which trains on them in this order.
"""

_NAMES = "namePar"
_NAMES_ATTRIBUTE = "names"


def read_targets(path: Path, name: str) -> dict[str, float]:
    """Return the values of a vector under the file's own names, else those of `COSMOLOGY`, else numbers.

    Raises
    ------
    DataError
        When it is no vector of numbers, was never written, or two values have one name.
    """
    return read_target_rows(path, name, ndim=1)[0]


def read_target_rows(path: Path, name: str, *, ndim: int = 2) -> list[dict[str, float]]:
    """Return the targets of each sample of a table that has a row a sample; see `read_targets`."""
    subject = f"{path}, dataset {name!r}"
    with translated(subject), open_file(str(path)) as file:
        table = np.atleast_2d(_numbers(file, name, subject=subject, ndim=ndim))
        names = _names(file, name, table.shape[1])
    twice = [text for text, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path}, names of {name!r}", found=f"{twice[0]!r} twice", expected="each name once")
    return [dict(zip(names, row, strict=True)) for row in table.tolist()]


def read_numbers(path: Path, name: str, *, ndim: int = 1) -> npt.NDArray[np.float64]:
    """Return a small dataset of numbers.

    Raises
    ------
    DataError
        When it has another number of axes, holds no numbers, or was never written.
    """
    subject = f"{path}, dataset {name!r}"
    with translated(subject), open_file(str(path)) as file:
        return _numbers(file, name, subject=subject, ndim=ndim)


def _numbers(file: h5py.File, name: str, *, subject: str, ndim: int) -> npt.NDArray[np.float64]:
    item = file[name]
    if item.ndim != ndim or item.dtype.kind not in "iuf":
        axes = "one axis" if ndim == 1 else f"{ndim} axes"
        raise DataError(subject, found=f"{item.dtype} {item.shape}", expected=f"{axes} of numbers")
    check_own_file(item, file, subject)
    check_supported(item, Location(file.filename, name))
    return np.asarray(read_whole(item, subject), dtype=np.float64)


def _names(file: h5py.File, name: str, count: int) -> tuple[str, ...]:
    """Return a name for each value: of the dataset's attribute, else of the file's list, else of the data set."""
    given = file[name].attrs.get(_NAMES_ATTRIBUTE)
    item = file.get(_NAMES)
    if given is None and isinstance(item, h5py.Dataset):
        given = item[()]
    if given is not None and np.shape(given) == (count,):
        texts = [text.decode() if isinstance(text, bytes) else str(text) for text in given]
        return tuple(text.strip() for text in texts)
    return COSMOLOGY if count == len(COSMOLOGY) else tuple(f"target_{index}" for index in range(count))
