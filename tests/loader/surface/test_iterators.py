"""Iterators: new ones and the same one, side by side, left early, and at their end."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("workers", [0, 1])
def test_iterators_are_independent(both: Any, workers: int, same: Callable[..., None]) -> None:
    """Each iterator of a loader is another one, and several run side by side."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, 3, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(2))
        one, other = iter(loader), iter(loader)
        found = [next(one), next(other), next(other)]
        third = iter(loader)
        found += [next(third), *one, *other, *third, next(one, "end")]
        return [one is other, loader._iterator is None, iter(one) is one, found]

    same(check, both)


@pytest.mark.long
def test_an_iterator_stays_with_its_workers(both: Any, same: Callable[..., None]) -> None:
    """With persistent workers there is one iterator, which begins again; the loader knows it."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, 3, shuffle=True, num_workers=1, persistent_workers=True)
        none = loader._iterator
        first = iter(loader)
        found = [next(first), next(first)]
        second = iter(loader)
        found += [*second, next(second, "end"), *loader]
        return [none, first is second, loader._iterator is first, len(first), found]

    same(check, both)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_is_not_copied(both: Any, workers: int, same: Callable[..., None]) -> None:
    """What an iterator is doing cannot be pickled."""

    def check(kind: Any, data: Any) -> Any:
        iterator = iter(kind(data, 3, num_workers=workers))
        found = []
        for clone in (pickle.dumps, copy.copy):
            try:
                clone(iterator)
            except NotImplementedError as error:
                found.append(error.args[0])  # the second word is the name of the iterator's class
        return [*found, len(iterator)]

    same(check, both)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("workers", [0, 1])
def test_an_end_stays_an_end(both: Any, workers: int, same: Callable[..., None]) -> None:
    """An iterator that has ended goes on saying so, and the loader begins anew."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, 4, num_workers=workers)
        iterator = iter(loader)
        count = sum(1 for _ in iterator)
        ends = [next(iterator, "end") for _ in range(3)]
        return [count, ends, sum(1 for _ in loader)]

    same(check, both)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("workers", [0, 1])
def test_epochs_may_be_left_early(both: Any, workers: int, same: Callable[..., None]) -> None:
    """The epoch after one that was left is whole."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, 2, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(1))
        return [list(itertools.islice(loader, 2)), list(loader), list(itertools.islice(loader, 1)), list(loader)]

    same(check, both)


def test_a_loader_without_a_name_goes_on(both: Any, same: Callable[..., None]) -> None:
    """An iterator keeps what it needs of its loader."""
    same(lambda kind, data: list(iter(kind(data, 4, num_workers=1))), both)


def test_loaders_are_nested(both: Any, same: Callable[..., None]) -> None:
    """A loader may run inside the loop over another one."""

    def check(kind: Any, data: Any) -> Any:
        return [(outer, list(kind(data, 6))) for outer in kind(data, 5)]

    same(check, both)


@pytest.mark.parametrize("attribute", ["_num_yielded", "_base_seed", "_num_workers", "_persistent_workers"])
def test_iterators_tell_of_themselves(both: Any, attribute: str, same: Callable[..., None]) -> None:
    """Names that loaders derived from torch's look at are there."""

    def check(kind: Any, data: Any) -> Any:
        iterator = iter(kind(data, 4))
        next(iterator)
        return getattr(iterator, attribute)

    same(check, both)
