"""Writes in place: what one process sees of them blocks see too, or the write is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from tests.engine.forward.onblocks_world import GRID, SHAPE, Net
from voxload.engine import check
from voxload.errors import UsageError
from voxload.grid import ProcessGrid


@pytest.mark.parametrize("is_reshaped", [False, True])
def test_a_block_does_not_share_memory_that_the_whole_does_not(is_reshaped: bool) -> None:
    """A block of one voxel along an axis is laid out as its transpose: what copies the whole would keep the block."""

    def operation(_: Net, x: Tensor) -> Tensor:
        turned = x.transpose(2, 3)
        y = turned.flatten(2) if is_reshaped else turned.contiguous()
        y.relu_()
        return x - y.view(turned.shape).transpose(2, 3)

    found = check(Net(operation), (2, 6, 4), ProcessGrid((2, 1, 1), 2), min_width=0)
    assert found.is_equal, str(found)


def test_a_view_that_is_used_after_a_write_is_refused_and_one_that_is_made_after_it_is_not() -> None:
    """Blocks of views are copies where voxels had to move."""

    def before(_: Net, x: Tensor) -> Tensor:
        view = x[:, :, 1:3]
        x[:, :, 2] = 0
        return x * view.sum((2, 3, 4), keepdim=True)

    def after(_: Net, x: Tensor) -> Tensor:
        x[:, :, 2] = 0
        return x * x[:, :, 1:3].sum((2, 3, 4), keepdim=True)

    with pytest.raises(UsageError, match="used again under another name"):
        check(Net(before), SHAPE, GRID, min_width=0)
    with pytest.raises(UsageError, match="a view of the volume into the volume"):
        check(Net(lambda _, x: x.__setitem__((..., slice(2)), x[..., 2:4]) or x), SHAPE, GRID, min_width=0)
    assert check(Net(after), SHAPE, GRID, min_width=0).is_equal


def _plane(x: Tensor) -> Tensor:
    """Return a view in one process, which is made whole on blocks."""
    return x[:, :, 3, 2, 1]


def _into_a_plane(_: Net, x: Tensor) -> Tensor:
    plane = _plane(x)
    plane.add_(1)
    return x * 1


def _into_one_of_two(_: Net, x: Tensor) -> Tensor:
    one, other = _plane(x), _plane(x)
    one.add_(1)
    return x.detach() * 0 + other[:, :, None, None, None]


def _before_a_plane_is_used(_: Net, x: Tensor) -> Tensor:
    plane = _plane(x)
    x[:, :, 3] = 0
    return x * plane[:, :, None, None, None]


def _given_back(_: Net, x: Tensor) -> Tensor:
    same = x.contiguous()  # one process gives back what it got
    same.relu_()
    return x * 2


@pytest.mark.parametrize("operation", [_into_a_plane, _into_one_of_two, _before_a_plane_is_used])
def test_what_is_whole_of_a_view_is_a_copy_and_no_write_goes_through_it(operation: Callable[..., Tensor]) -> None:
    """The volume would not see it, nor would others that were made whole of it."""
    with pytest.raises(UsageError, match="used again under another name"):
        check(Net(operation), SHAPE, GRID, min_width=0)


def test_what_is_whole_and_of_one_memory_is_written_into() -> None:
    """Plain tensors are views of each other as in one process; copies are nobody else's."""

    def operation(_: Net, x: Tensor) -> Tensor:
        mean, copied = x.mean((2, 3, 4)), _plane(x).clone()
        mean.view(2, -1, 1).relu_()
        copied += 1
        return x * (mean + copied)[:, :, None, None, None]

    found = check(Net(operation), SHAPE, GRID, min_width=0)
    assert found.is_equal, str(found)


def test_what_gives_back_its_input_may_be_written_into() -> None:
    """It has one name in one process and here."""
    found = check(Net(_given_back), SHAPE, GRID, min_width=0)
    assert found.is_equal, str(found)


def test_calls_of_which_one_copies_and_one_does_not_are_refused() -> None:
    """Nothing tells them apart when the network runs."""

    def operation(_: Net, x: Tensor) -> Tensor:
        y = (x * 2).transpose(0, 1).contiguous().transpose(0, 1)  # laid out otherwise, cut alike
        one, other = y.contiguous(), x.contiguous()
        one.relu_()
        other.relu_()
        return x + y + one

    with pytest.raises(UsageError, match="a copy of one volume and none of another one"):
        check(Net(operation), SHAPE, GRID, min_width=0)
