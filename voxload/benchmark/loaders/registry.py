"""Registry: which loaders there are. None of them imports the library that it measures before it is built."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from voxload.benchmark.loaders import own
from voxload.benchmark.loaders.kind import Kind, missing, prepare
from voxload.benchmark.loaders.protocol import LoaderKind
from voxload.benchmark.loaders.volumes import HDF5, NPY, RAW, ZARR2, ZARR3
from voxload.errors import UsageError

__all__ = ["BUILT_IN", "ENTRY_POINTS", "kinds", "missing", "named", "prepare"]

ENTRY_POINTS = "voxload.benchmark"
"""Entry-point group: each entry names a class without arguments that keeps the LoaderKind contract."""
BUILT_IN: tuple[LoaderKind, ...] = (
    own.KIND,
    own.APART,
    Kind("torch-h5py", "torch DataLoader, h5py blocks", ("h5py",), (HDF5,), "hdf5_array:torch_h5py"),
    Kind("torch-h5py-whole", "torch DataLoader, h5py whole samples", ("h5py",), (HDF5,), "hdf5_array:torch_h5py_whole"),
    Kind("h5py", "h5py, one thread", ("h5py",), (HDF5,), "hdf5_array:h5py_alone"),
    Kind("torch-zarr", "torch DataLoader, zarr-python", ("zarr",), (ZARR2, ZARR3), "zarr_array:torch_zarr"),
    Kind(
        "torch-zarrs",
        "torch DataLoader, zarrs",
        ("zarr", "zarrs"),
        (ZARR2, ZARR3),
        "zarr_array:torch_zarrs",
        native_only=(ZARR2,),
    ),
    Kind("torch-npy", "torch DataLoader, numpy memory maps", (), (NPY, RAW), "block_loading:torch_npy"),
    Kind(
        "tensorstore",
        "tensorstore",
        ("tensorstore",),
        (ZARR2, ZARR3),
        "tensorstore_loading:TensorstoreLoading",
        least_threads=1,
    ),
    Kind(
        "monai",
        "MONAI CacheDataset",
        ("monai", "h5py"),
        (HDF5,),
        "monai_loading:MonaiLoading",
        least_threads=1,
        keeps_memory=True,
    ),
    Kind(
        "dali",
        "DALI numpy reader",
        ("nvidia.dali",),
        (NPY,),
        "dali_numpy:DaliLoading",
        least_threads=1,
        native_only=(NPY,),
    ),
    Kind(
        "torch-voxload",
        "torch DataLoader, voxload's blocks",
        (),
        (HDF5, ZARR2, ZARR3, NPY, RAW),
        "torch_dataset:torch_voxload",
        reads_data=True,
    ),
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
