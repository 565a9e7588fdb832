"""AxisOrder: stored order to (C, D, H, W) and back."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr

import voxload
from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder, axes_of_names, declared_axes, declared_or_usual, resolve_axes

ALL = ["".join(letters) for word in ("DHW", "CDHW") for letters in permutations(word)]


@pytest.mark.parametrize("axes", ALL)
def test_there_and_back(axes: str) -> None:
    """to_stored undoes to_volume, and the view of a volume in stored order has stored extents."""
    order = AxisOrder(axes)
    extents = {"C": 2, "D": 3, "H": 4, "W": 5}
    stored = tuple(extents[axis] for axis in axes)
    shape = order.to_volume(stored, 1)
    assert shape == (2 if "C" in axes else 1, 3, 4, 5)
    assert order.to_stored(shape) == stored
    assert order.view(np.zeros(shape)).shape == stored
    box = order.box(Box((0, 1, 2), (3, 2, 4)), shape[0])
    assert box.shape == tuple({"C": 2, "D": 3, "H": 1, "W": 2}[axis] for axis in axes)


@pytest.mark.parametrize("axes", ["", "D", "DH", "DHWX", "DDH", "dhw", "CCDH", "CDHWC"])
def test_other_letters_are_refused(axes: str) -> None:
    """Only letters of NTCDHW are axes, each once, and H and W among them."""
    with pytest.raises(UsageError, match="letters of 'NTCDHW'"):
        AxisOrder(axes)


@pytest.mark.parametrize("axes", ["TCDHW", "NDHW", "HW", "CHW", "NTCDHW"])
def test_whoever_knows_no_samples_and_steps_refuses_them(axes: str) -> None:
    """A converter's sources are volumes; readers take what is named, and guess nothing."""
    with pytest.raises(UsageError, match=r"permutation|three \(D, H, W\)"):
        resolve_axes("x", ndim=len(axes), given=axes, declared=None)
    assert resolve_axes("x", ndim=len(axes), given=axes, declared=None, has_lead=True).axes == axes
    with pytest.raises(UsageError):
        resolve_axes("x", ndim=5, given=None, declared=None, has_lead=True)


def test_the_callers_word_comes_first() -> None:
    """Given, then declared, then the only choice for three axes."""
    assert resolve_axes("x", ndim=3, given="whd", declared="HDW").axes == "WHD"
    assert resolve_axes("x", ndim=3, given=None, declared="HDW").axes == "HDW"
    assert resolve_axes("x", ndim=3, given=None, declared=None).axes == "DHW"


@pytest.mark.parametrize(
    ("names", "axes"),
    [
        (("d", "h", "w"), "DHW"),
        (("C", "D", "H", "W"), "CDHW"),
        (("z", "y", "x"), None),
        (("d", None, "w"), None),
        (("", "", ""), None),
        ((), None),
        (None, None),
    ],
)
def test_only_our_own_names_are_understood(names: tuple[str | None, ...] | None, axes: str | None) -> None:
    """Names that are not ours are no names: z, y, x may mean anything."""
    assert declared_axes(names) == axes


HALF_NAMED = [
    (("x", "q", "r"), True),  # which may be turned
    (("time", "i", "j"), True),  # time for depth
    (("q", "r", "z"), True),
    (("z", "q", None), False),
    ((None, "lat", "q"), False),
    (("q", "r", "s"), False),
    (("x", "y", "z"), False),  # all are known, and the volume is turned by them
    (("time", "x", "q", "r"), False),  # four without names are refused anyway
]


@pytest.mark.parametrize(("names", "is_refused"), HALF_NAMED)
def test_a_name_that_denies_the_usual_axes_is_not_overlooked(
    names: tuple[str | None, ...], *, is_refused: bool
) -> None:
    """Whichever of a file's ways to name dimensions says it."""
    for namings in ([names], [None, names], [names, None], [("q",) * len(names), names]):
        if is_refused:
            with pytest.raises(UsageError, match=r"volume: found dimensions \(.*of which not all are known"):
                declared_or_usual("volume", *namings)
        else:
            assert declared_or_usual("volume", *namings) == axes_of_names(*namings)


@pytest.mark.parametrize("kind", ["zarr 2", "zarr 3", "labels", "scales", "xarray"])
def test_every_reader_refuses_volumes_that_names_would_turn(kind: str, tmp_path: Path) -> None:
    """Unless the caller says what they are, which then are the voxels as stored."""
    stored = np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32)
    names = ("x", "q", "r")
    place: Any = tmp_path / ("volume.zarr" if "zarr" in kind else "volume.h5")
    if kind == "zarr 3":
        zarr.create_array(place, data=stored, dimension_names=names)
    elif kind == "zarr 2":
        array = zarr.create_array(place, data=stored, zarr_format=2)
        array.attrs["_ARRAY_DIMENSIONS"] = list(names)
    elif kind == "xarray":
        place = xarray.DataArray(stored, dims=names)
    else:
        with h5py.File(place, "w") as file:
            dataset = file.create_dataset("volume", data=stored)
            for axis, name in enumerate(names):
                if kind == "labels":
                    dataset.dims[axis].label = name
                else:
                    scale = file.create_dataset(name, data=np.arange(stored.shape[axis]))
                    scale.make_scale(name)
                    dataset.dims[axis].attach_scale(scale)
    words: Any = {"missing": "fill"} if kind == "xarray" else {}
    with pytest.raises(UsageError, match=r"dimensions \(x, q, r\), of which not all are known"):
        voxload.VolumeDataset([place], **words)[0]
    told = voxload.VolumeDataset([place], axes="DHW", **words)
    assert np.array_equal(np.asarray(told[0][0]), stored[None])
