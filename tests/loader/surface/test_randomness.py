"""Randomness: what a loader draws from which generator, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import RandomSampler

DRAWING: dict[str, Callable[[torch.Generator], dict[str, Any]]] = {
    "in order": lambda _: {},
    "shuffled": lambda _: {"shuffle": True},
    "shuffled by a generator": lambda generator: {"shuffle": True, "generator": generator},
    "a sampler's generator": lambda generator: {"sampler": RandomSampler(range(11), generator=generator)},
    "both": lambda generator: {"sampler": RandomSampler(range(11), generator=generator), "generator": generator},
}


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("arguments", DRAWING.values(), ids=list(DRAWING))
def test_generators_are_used_as_in_torch(
    both: Any, arguments: Callable[[Any], Any], workers: int, same: Callable[..., None]
) -> None:
    """At each point of the loop, what a training step would draw next is what it would be with torch's loader."""

    def check(kind: Any, data: Any) -> Any:
        generator = torch.Generator().manual_seed(5)
        found: list[Any] = []

        def look() -> None:
            found.extend((torch.get_rng_state(), generator.get_state()))

        loader = kind(data, batch_size=3, num_workers=workers, **arguments(generator))
        look()
        for _ in range(2):
            iterator = iter(loader)
            look()
            for batch in iterator:
                found.append(batch)
                look()
                found.append(torch.rand(1))  # a step that draws numbers itself
            look()
        return found

    same(check, both)


def test_a_sampler_of_ones_own_is_drawn_as_by_processes(data: Any, same: Callable[..., None]) -> None:
    """What nobody can foresee is drawn ahead to be read ahead: as many batches as torch's worker processes do."""

    def check(kind: Any, data: Any) -> Any:
        sampler = (int(torch.randint(11, ())) for _ in range(20))
        return [(batch, torch.get_rng_state()) for batch in kind(data, 3, sampler=sampler, num_workers=2)]

    same(check, data)


def test_the_base_seed_is_drawn_once_an_iterator(both: Any, same: Callable[..., None]) -> None:
    """Each iterator draws a seed for its workers, used or not, from the loader's generator or from torch's."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, 4)
        seeds = [iter(loader)._base_seed for _ in range(3)]
        loader.generator = torch.Generator().manual_seed(8)
        return [seeds, iter(loader)._base_seed, loader.generator.get_state(), torch.rand(2)]

    same(check, both)


def test_workers_that_stay_draw_as_in_torch(both: Any, same: Callable[..., None]) -> None:
    """An iterator that begins again leaves the generators where torch leaves them."""

    def check(kind: Any, data: Any) -> Any:
        loader = kind(data, 4, shuffle=True, num_workers=1, persistent_workers=True)
        return [(list(loader), torch.get_rng_state(), loader._iterator._base_seed) for _ in range(3)]

    same(check, both)
