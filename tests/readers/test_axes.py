"""AxisOrder: stored order to (C, D, H, W) and back."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from voxload.errors import UsageError
from voxload.geometry import Box
from voxload.readers.axes import AxisOrder, declared_axes, resolve_axes

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
