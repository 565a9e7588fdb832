"""Registry: which loaders there are. None of them imports the library that it measures before it is built.

None of them imports the library that it measures before it is built.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from voxload.benchmark.loaders import (
    block_loading,
    dali_numpy,
    own,
)
from voxload.benchmark.loaders.kind import Kind, check_installed, missing
from voxload.benchmark.loaders.protocol import BenchLoader, LoaderKind, Task
from voxload.benchmark.loaders.volumes import HDF5, ZARR2, ZARR3
from voxload.errors import UsageError


def _make_monai(task: Task) -> BenchLoader:
    from voxload.benchmark.loaders.monai_loading import MonaiLoading  # noqa: PLC0415 - imports the library, for seconds

    return MonaiLoading(task)


MONAI = Kind(
    "monai",
    "MONAI CacheDataset",
    ("monai", "h5py"),
    (HDF5,),
    _make_monai,
    least_threads=1,
    keeps_memory=True,
)


def _make_tensorstore(task: Task) -> BenchLoader:
    from voxload.benchmark.loaders.tensorstore_loading import TensorstoreLoading  # noqa: PLC0415 - imports the library

    return TensorstoreLoading(task)


TENSORSTORE = Kind("tensorstore", "tensorstore", ("tensorstore",), (ZARR2, ZARR3), _make_tensorstore, least_threads=1)


__all__ = ["BUILT_IN", "ENTRY_POINTS", "check_installed", "kinds", "missing", "named"]

ENTRY_POINTS = "voxload.benchmark"
"""Entry-point group: each entry names a class without arguments that keeps the LoaderKind contract."""
BUILT_IN: tuple[LoaderKind, ...] = (
    own.KIND,
    block_loading.TORCH_H5PY,
    block_loading.TORCH_H5PY_WHOLE,
    block_loading.H5PY_ALONE,
    block_loading.TORCH_ZARR,
    block_loading.TORCH_ZARRS,
    block_loading.TORCH_NPY,
    TENSORSTORE,
    MONAI,
    dali_numpy.KIND,
)
"""Loaders of this package."""


def kinds() -> tuple[LoaderKind, ...]:
    """Return all loaders, those of others last; raises UsageError at one of others that cannot be loaded."""
    return (*BUILT_IN, *(_load(point) for point in _installed()))


def named(name: str) -> LoaderKind:
    """Return the loader of a name, whether or not what it `needs` is there; nobody else's is loaded.

    Raises
    ------
    UsageError
        When there is none of that name, or it is another package's and cannot be loaded.
    """
    for kind in BUILT_IN:
        if kind.name == name:
            return kind
    installed = _installed()
    for point in installed:
        if point.name == name:
            return _load(point)
    known = [*(kind.name for kind in BUILT_IN), *(point.name for point in installed)]
    raise UsageError(
        "loader",
        found=repr(name),
        expected=f"one of {', '.join(known)}",
        remedy=f"others register under the entry points {ENTRY_POINTS}",
    )


def _installed() -> tuple[EntryPoint, ...]:
    """Return the loaders of other packages; raises UsageError at one that has the name of another one."""
    found = tuple(entry_points(group=ENTRY_POINTS))
    taken = {kind.name for kind in BUILT_IN}
    for point in found:
        if point.name in taken:
            raise UsageError(
                f"entry point {point.name!r} of {ENTRY_POINTS}",
                found=f"the name of another loader, for {point.value}",
                expected="a name of its own",
                remedy="uninstall one of the packages",
            )
        taken.add(point.name)
    return found


def _load(point: EntryPoint) -> LoaderKind:
    """Return what an entry point names."""
    try:
        kind: LoaderKind = point.load()()
    except Exception as error:
        raise UsageError(
            f"entry point {point.name!r} of {ENTRY_POINTS}",
            found=f"{point.value}, which does not load: {type(error).__name__}: {error}",
            expected="a class without arguments",
            remedy="mend or uninstall the package that registers it",
        ) from error
    if kind.name != point.name:
        raise UsageError(
            f"entry point {point.name!r} of {ENTRY_POINTS}",
            found=f"a loader that calls itself {kind.name!r}",
            expected="one name",
        )
    return kind
