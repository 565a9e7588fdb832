"""Cache(locality="epochs"): each of torch's epochs once, in one order on all ranks, which a state has with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import voxload
from tests.loader.caching.dealt_world import EXTENT, RANKS, SAMPLES, SEED, numbers_of, write
from tests.loader.caching.reordered_ranks import EPOCHS
from tests.support.ranks import printed_by_ranks
from voxload.cache.memory.layout import Layout
from voxload.errors import UsageError
from voxload.loader.sampler import GroupSampler
from voxload.prefetch import machines, policies
from voxload.prefetch.events import SourceKind
from voxload.prefetch.line import Line, Room
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.simulate import Model, Workload, run
from voxload.prefetch.simulation.machine import Staging

BLOCKS = (1, 2)
MACHINE = replace(machines.load("lassen"), staging=Staging(0, 6, threads=2, decode=float("inf")))
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Rows]:
    """Return what four ranks print whose samples are shared by so many of them."""
    folder = tmp_path_factory.mktemp("reordered")
    write(folder)

    @cache
    def printed(blocks: int) -> Rows:
        output = printed_by_ranks("tests.loader.caching.reordered_ranks", folder, str(blocks), ranks=RANKS)
        return sorted(map(json.loads, output.splitlines()), key=lambda row: int(row["rank"]))

    return printed


@pytest.mark.parametrize("blocks", BLOCKS)
def test_each_of_torchs_epochs_is_used_once(rows: Callable[[int], Rows], blocks: int) -> None:
    """On all ranks in the same order, which is another one; an epoch more than there were said to be is its own."""
    orders = {tuple(row["run shuffles"]) for row in rows(blocks)}
    (order,) = orders
    assert sorted(order) == list(range(EPOCHS))
    assert order != tuple(range(EPOCHS))
    for row in rows(blocks):
        assert row["run"] == [row["plain"][number] for number in (*order, EPOCHS)]
        assert sorted(row["clairvoyant shuffles"]) == list(range(EPOCHS))
        assert row["clairvoyant"] == [row["plain"][number] for number in row["clairvoyant shuffles"]]


@pytest.mark.parametrize("blocks", BLOCKS)
def test_epochs_that_are_left_early_count(rows: Callable[[int], Rows], blocks: int) -> None:
    """The one behind is the next of the order."""
    for row in rows(blocks):
        lengths = (None, 2, None, 1, None, None, None, None)
        numbers = row["left shuffles"]
        assert row["left"] == [row["plain"][number][:length] for number, length in zip(numbers, lengths, strict=True)]


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("name", ["half-way", "between", "without", "same"])
def test_a_run_that_goes_on_has_the_same_epochs(rows: Callable[[int], Rows], blocks: int, name: str) -> None:
    """From a state within an epoch or between two, by the same loader or another, with or without the option."""
    for row in rows(blocks):
        assert row["resumed"][name] == row["run"]


@pytest.mark.parametrize("blocks", BLOCKS)
def test_epochs_that_were_begun_keep_their_shuffles(rows: Callable[[int], Rows], blocks: int) -> None:
    """Those of a state that was saved without the option; the rest are each used once."""
    for row in rows(blocks):
        late, plain = row["late"], row["plain"]
        assert late[:3] == plain[:3]
        assert sorted(late[3:]) == sorted(plain[3:EPOCHS])


@pytest.mark.parametrize("blocks", BLOCKS)
def test_a_number_is_that_of_a_place_in_the_order(rows: Callable[[int], Rows], blocks: int) -> None:
    """set_epoch(0) is the first epoch again."""
    for row in rows(blocks):
        assert row["chosen"] == [row["run"][0], row["run"][3], row["run"][0]]


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize(("name", "policy"), [("run", "lru"), ("clairvoyant", "clairvoyant")])
def test_bytes_are_those_predicted(rows: Callable[[int], Rows], blocks: int, name: str, policy: str) -> None:
    """From the storage and from peers together: within a tenth of the simulator's."""
    groups = RANKS // blocks
    one = rows(blocks)[0]
    line = Line(np.array(one["line"]["sizes"]), tuple(Room(room, 0) for room in one[f"{name} rooms"]))
    orders = shuffled_orders(SAMPLES, groups, batch=2, seed=SEED, epochs=EPOCHS)
    if name == "run":  # which goes on for an epoch behind the last one said
        own = shuffled_orders(SAMPLES, groups, batch=2, seed=SEED, epochs=EPOCHS + 1)
        orders = tuple(own[number] for number in (*one["run shuffles"], EPOCHS))
    workload = Workload(line, orders, 0.01, blocks, locality=None if name == "run" else "epochs")
    predicted = run(MACHINE, workload, policies.named(policy), model=Model.EVENTS)
    scale = one["line"]["block"] / one["line"]["sizes"][0]  # plans count what a tier takes
    kinds = (SourceKind.STORAGE, SourceKind.PEER)
    measured = sum(row[f"{name} sources"][kind.value] for row in rows(blocks) for kind in kinds)
    assert measured == pytest.approx(scale * sum(predicted.bytes_by_source[kind] for kind in kinds), rel=0.1)


@pytest.mark.parametrize("blocks", BLOCKS)
def test_what_cannot_be_reordered_is_refused(rows: Callable[[int], Rows], blocks: int) -> None:
    """On every rank."""
    said = {
        "torch's sampler": "found DistributedSampler",
        "other epochs": "that order epochs otherwise than rank 0",
        "in order": "GroupSampler that does not shuffle",
        "another sampler": "epochs that were reordered, and DistributedSampler",
        "twice": "each number of an epoch once",
        "no numbers": "each number of an epoch once",
        "half": "each number of an epoch once",
    }
    for row in rows(blocks):
        assert row["refused"].keys() == said.keys()
        for name, words in said.items():
            assert row["refused"][name].startswith("UsageError: ")
            assert words in row["refused"][name], name


@pytest.mark.parametrize(
    ("words", "said"), [({}, "epochs=None"), ({"epochs": 3, "clairvoyant": False}, "clairvoyant=False")]
)
def test_epochs_must_be_known(words: dict[str, Any], said: str) -> None:
    """How many there are, and that their orders may be."""
    with pytest.raises(UsageError, match=said):
        voxload.Cache(memory="1MiB", locality="epochs", **words)


def test_one_rank_alone(tmp_path: Path) -> None:
    """A GroupSampler's epochs are reordered, and with an empty state anew; torch's random sampler has no numbers."""
    write(tmp_path)
    room = Layout.within(2**16, None).data_at + 12 * (4 * EXTENT**3 + 256)
    cache_ = voxload.Cache(memory=room, policy="lru", epochs=6, locality="epochs")
    with closing(voxload.VolumeDataset(f"{tmp_path}/*.npy")) as data:
        refused = voxload.DataLoader(data, 2, shuffle=True, cache=cache_)
        with pytest.raises(UsageError, match="found RandomSampler"):
            next(iter(refused))
        refused.close()
        sampler = GroupSampler(data, data.grid, shuffle=True, seed=SEED)
        plain = [[*GroupSampler(data, data.grid, shuffle=True, seed=SEED + epoch)] for epoch in range(6)]
        with closing(voxload.DataLoader(data, None, sampler=sampler, cache=cache_)) as loader:
            for _ in range(2):
                drawn = [[numbers_of(item[0], data)[0] for item in loader] for _ in range(6)]
                assert drawn == [plain[number] for number in sampler.shuffles]
                assert sorted(sampler.shuffles) == list(range(6))
                loader.load_state_dict({})
                assert sampler.shuffles == ()
                sampler.set_epoch(0)
