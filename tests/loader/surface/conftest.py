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


_FORKS = "fork"
"""Newer Pythons warn of forks beside threads, whichever loader forks."""
_PROCESSES = "This DataLoader will create"
"""torch warns of more worker processes than cores; a VolumeDataset is read by threads, which are none."""


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
    unlike = (_FORKS, _PROCESSES) if isinstance(data, voxload.VolumeDataset) else (_FORKS,)
    told = [(entry.category, str(entry.message)) for entry in caught]
    warned = [one for one in told if not any(words in one[1] for words in unlike)]
    return Outcome(value, error, where, warned)


def _difference(ours: Any, theirs: Any, where: str = "") -> str:
    """Return where two values differ, for people; empty where they are equal in types and values."""
    if type(ours) is not type(theirs):
        return f"{where}: {type(ours)} is not {type(theirs)}"
    if isinstance(ours, Mapping):
        if list(ours) != list(theirs):
            return f"{where}: {list(ours)} is not {list(theirs)}"
        pairs = [(f"{where}[{key!r}]", ours[key], theirs[key]) for key in ours]
    elif isinstance(ours, list | tuple):
        if len(ours) != len(theirs):
            return f"{where}: {len(ours)} parts are not {len(theirs)}"
        pairs = [(f"{where}[{place}]", *pair) for place, pair in enumerate(zip(ours, theirs, strict=True))]
    elif isinstance(ours, torch.Tensor):
        is_equal = ours.dtype == theirs.dtype and torch.equal(ours, theirs)
        return (
            ""
            if is_equal
            else f"{where}: {ours.dtype} {ours.shape} is not {theirs.dtype} {theirs.shape}, or its values"
        )
    else:
        return "" if bool(ours == theirs) else f"{where}: {ours!r} is not {theirs!r}"
    return next((found for at, mine, other in pairs if (found := _difference(mine, other, at))), "")


def _compare(ours: Outcome, theirs: Outcome) -> None:
    if ours.error != theirs.error:
        pytest.fail(f"raised {ours.error}, not {theirs.error}\n{ours.where}\n{theirs.where}")
    assert ours.warned == theirs.warned
    difference = _difference(ours.value, theirs.value)
    if difference:
        pytest.fail(difference)


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
