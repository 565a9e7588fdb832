"""errors: one line, the builtins they also are, and the ways they travel."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from voxload.errors import DataError, InternalError, NotFoundError, StorageError, UsageError, VoxloadError

LEAVES = [UsageError, NotFoundError, DataError, StorageError, InternalError]


def make(kind: type[VoxloadError]) -> VoxloadError:
    """Make an error with all its parts."""
    return kind("x.h5", found="3 axes", expected="4", remedy="say axes")


@pytest.mark.parametrize("kind", LEAVES)
def test_the_message_is_one_line(kind: type[VoxloadError]) -> None:
    """Subject, facts and remedy, in this order; errno forms of OSError do not show."""
    assert str(make(kind)) == "x.h5: found 3 axes, expected 4; say axes"
    assert str(kind("x.h5", expected="4")) == "x.h5: expected 4"
    assert str(kind("x.h5", remedy="say axes")) == "x.h5; say axes"
    assert str(kind("a sentence")) == "a sentence"
    assert str(kind()) == ""


@pytest.mark.parametrize("kind", LEAVES)
def test_copies_are_the_same(kind: type[VoxloadError]) -> None:
    """An error that crosses to another process keeps its type and its message."""
    error = make(kind)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert type(other) is kind
        assert str(other) == str(error)


@pytest.mark.parametrize("kind", LEAVES)
def test_libraries_may_make_instances_by_name(kind: type[VoxloadError]) -> None:
    """What pickles exceptions for itself, as Dask's tblib does once it is imported, finds a constructor that works."""
    assert type(kind.__new__(kind, "x.h5: found 3 axes")) is kind


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (UsageError, ValueError),
        (NotFoundError, UsageError),
        (NotFoundError, FileNotFoundError),
        (DataError, ValueError),
        (StorageError, OSError),
        (InternalError, RuntimeError),
    ],
)
def test_each_is_also_a_builtin(kind: type[VoxloadError], builtin: type[Exception]) -> None:
    """Code that knows nothing of voxload catches the builtin."""
    assert issubclass(kind, builtin)
    assert issubclass(kind, VoxloadError)


def test_the_blames_do_not_overlap() -> None:
    """Only a missing name is also a wrong call."""
    pairs = {(a, b) for a in LEAVES for b in LEAVES if a is not b and issubclass(a, b)}
    assert pairs == {(NotFoundError, UsageError)}


class Failing(Dataset[torch.Tensor]):
    """A data set whose items all fail, each in another way."""

    def __len__(self) -> int:
        return len(RAISED)

    def __getitem__(self, index: int) -> torch.Tensor:
        raise make(RAISED[index])


RAISED = (DataError, StorageError, NotFoundError)


@pytest.mark.long
def test_torchs_workers_hand_the_error_over() -> None:
    """A worker process of torch's loader raises the same type in the training process."""
    batches = iter(DataLoader(Failing(), num_workers=1, multiprocessing_context="forkserver"))
    for kind in RAISED:
        with pytest.raises(kind, match=r"x\.h5: found 3 axes, expected 4; say axes"):
            next(batches)
    with pytest.raises(StopIteration):  # whose worker ends at once; of an epoch that is left, torch waits for it
        next(batches)
