"""What the checks of the loader's surface share: two data sets, and a comparison of torch's loader with ours.

A check is a function of a loader class and a data set. It is run with torch's `DataLoader` and with voxload's, from the
same state of torch's generator; what it returns or raises, and what it warns of, must be equal.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

import voxload

Check = Callable[[Any, Any], Any]
_NUMBERS = re.compile(r"0x[0-9a-f]+|pid\(s\) [0-9, ]+|pid: \d+")
"""What differs from one run to the next: addresses and process numbers."""


class Ordinary(Dataset[Any]):
    """A map-style data set of the same samples as the VolumeDataset."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check came to."""

    value: Any
    error: tuple[type[BaseException], str] | None
    where: str
    """Traceback, for people."""
    warned: list[tuple[type[Warning], str]]


def _run(check: Check, kind: Any, data: Any) -> Outcome:
    torch.manual_seed(0)
    value, error, where = None, None, ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = check(kind, data)
        except Exception as raised:  # noqa: BLE001 - whatever a loader raises is what is compared
            error = (type(raised), _NUMBERS.sub("#", str(raised)))
            where = "".join(traceback.format_exception(raised))
    # Newer Pythons warn of forks beside threads, whichever loader forks.
    warned = [(entry.category, str(entry.message)) for entry in caught if "fork" not in str(entry.message)]
    return Outcome(value, error, where, warned)


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, torch.Tensor) or isinstance(theirs, torch.Tensor):
        return type(ours) is type(theirs) and ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, Mapping):
        return list(ours) == list(theirs) and all(_equal(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(_equal, ours, theirs))
    return bool(ours == theirs)


def _compare(ours: Outcome, theirs: Outcome) -> None:
    assert ours.error == theirs.error, f"{ours.error} is not {theirs.error}\n{ours.where}\n{theirs.where}"
    assert ours.warned == theirs.warned
    assert _equal(ours.value, theirs.value), f"{ours.value!r}\nis not\n{theirs.value!r}"


@pytest.fixture
def same() -> Callable[..., None]:
    """Return what runs a check with both loaders and compares; `torchs` is another one for torch's loader to run."""

    def run(check: Check, data: Any, *, torchs: Check | None = None) -> None:
        _compare(_run(check, voxload.DataLoader, data), _run(torchs or check, TorchLoader, data))

    return run


@pytest.fixture
def plain(data: voxload.VolumeDataset) -> Ordinary:
    """Return an ordinary data set."""
    return Ordinary([data[index] for index in range(len(data))])


@pytest.fixture(params=["plain", "volumes"])
def both(request: pytest.FixtureRequest, data: voxload.VolumeDataset) -> Any:
    """Return an ordinary data set, which torch reads with processes, and a VolumeDataset, which threads read."""
    return data if request.param == "volumes" else request.getfixturevalue("plain")
