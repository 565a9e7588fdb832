"""Cache(locality="batch"): global batches are torch's, groups agree, and what moves is what is predicted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import voxload
from tests.loader.caching.dealt_world import LIVES, RANKS, SAMPLES, SEED, write
from tests.support.growing import grown
from tests.support.ranks import printed_by_ranks
from voxload.errors import UsageError
from voxload.loader.caching.dealing import Stock, presumed
from voxload.prefetch import machines, policies
from voxload.prefetch.events import SourceKind
from voxload.prefetch.line import Line, Room
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.simulate import Model, Workload, run
from voxload.prefetch.simulation.machine import Staging

BLOCKS = (1, 2)
NAMES = [*(life.name for life in LIVES), "resumed anew", "resumed", "growing", "disk again"]
MACHINE = replace(machines.load("lassen"), staging=Staging(0, 6, threads=2, decode=float("inf")))
"""One whose ranks have as many slots as ours; how fast it is makes little difference to what moves."""
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Rows]:
    """Return what four ranks print whose samples are shared by so many of them."""
    folder = tmp_path_factory.mktemp("dealt")
    write(folder)
    place = folder / "growing"
    for generation, numbers in enumerate((range(16), range(16, 25)), 1):
        grown(place, *numbers, settled=True)
        (place / f"{generation}.parquet").write_bytes((place / "catalog.parquet").read_bytes())

    @cache
    def printed(blocks: int) -> Rows:
        output = printed_by_ranks("tests.loader.caching.dealt_ranks", folder, str(blocks), ranks=RANKS)
        return sorted(map(json.loads, output.splitlines()), key=lambda row: int(row["rank"]))

    return printed


def by_group(rows: Rows, name: str, kind: str) -> list[Any]:
    """Return the epochs of each group, on all of whose ranks they are the same."""
    found: dict[int, Any] = {}
    for row in rows:
        epochs = row["lives"][name][kind]
        assert found.setdefault(row["group"], epochs) == epochs
    return [found[group] for group in sorted(found)]


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("name", NAMES)
def test_global_batches_are_torchs(rows: Callable[[int], Rows], blocks: int, name: str) -> None:
    """In each step of each epoch: all samples as often, and of each group as many; after a resume, too."""
    plain, dealt = (by_group(rows(blocks), name, kind) for kind in ("plain", "dealt"))
    assert len(plain) == RANKS // blocks
    for torchs, ours in zip(zip(*plain, strict=True), zip(*dealt, strict=True), strict=True):
        assert [[len(batch) for batch in group] for group in ours] == [[len(batch) for batch in one] for one in torchs]
        for step in zip(zip(*torchs, strict=True), zip(*ours, strict=True), strict=True):
            assert Counter(chain.from_iterable(step[0])) == Counter(chain.from_iterable(step[1]))
    assert all(sum(map(len, epoch)) for epoch in plain[0])
    assert name == "disk again" or plain[0][0] == dealt[0][0]  # nothing is kept yet
    assert plain != dealt


@pytest.mark.parametrize("blocks", BLOCKS)
def test_bytes_are_those_predicted(rows: Callable[[int], Rows], blocks: int) -> None:
    """From the storage and from peers: within a tenth of the simulator's, and fewer than without."""
    groups, taken = RANKS // blocks, {}
    for locality in (None, "batch"):
        found = [row[f"bytes {locality}"] for row in rows(blocks)]
        one = found[0]
        line = Line(np.array(one["sizes"]), tuple(Room(room, 0) for room in one["rooms"]))
        orders = shuffled_orders(SAMPLES, groups, batch=2, seed=SEED, epochs=6)
        workload = Workload(line, orders, 0.01, blocks, locality=locality)
        predicted = run(MACHINE, workload, policies.named("clairvoyant"), model=Model.EVENTS)
        scale = one["block"] / one["sizes"][0]  # plans count what a tier takes
        for kinds in ((SourceKind.STORAGE,), (SourceKind.STORAGE, SourceKind.PEER)):
            measured = sum(each["sources"][kind.value] for each in found for kind in kinds)
            wanted = scale * sum(predicted.bytes_by_source[kind] for kind in kinds)
            assert measured == pytest.approx(wanted, rel=0.1), (locality, kinds)
        taken[locality] = measured
    assert taken["batch"] < 0.9 * taken[None]


@pytest.mark.parametrize("blocks", BLOCKS)
def test_what_cannot_be_dealt_is_refused(rows: Callable[[int], Rows], blocks: int) -> None:
    """On every rank."""
    for row in rows(blocks):
        said = row["refused"]
        assert "whose order for other groups is not known" in said["own sampler"]
        assert "whose order for other groups is not known" in said["own batches"]
        assert ("ranks [1]" if row["rank"] != 1 else "another one that is under way") in said["beside another"]
        assert "deal samples otherwise than rank 0" in said["other epochs"]
        assert "as it was foreseen" in said["changed sampler"]
        assert all(text.startswith("UsageError: ") for text in said.values())


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"locality": "step"}, "cache locality: found 'step'"),
    "alone": ({"locality": "batch", "peers": "none"}, 'peers "none"'),
    "served": ({"locality": "batch", "service": "auto"}, "a service"),
    "without room": ({"locality": "batch"}, "no room"),
    "kept by nobody": ({"locality": "batch", "memory": "1MiB", "policy": "staging"}, "'staging', which keeps nothing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_caches_that_cannot_deal(name: str) -> None:
    """Are refused as they are made."""
    words, said = WRONG[name]
    with pytest.raises(UsageError, match=said):
        voxload.Cache(**words)


def test_one_group_has_what_torchs_has(tmp_path: Path) -> None:
    """There is nobody to deal with."""
    write(tmp_path)
    data = voxload.VolumeDataset(f"{tmp_path}/*.npy")
    streams = []
    for locality in (None, "batch"):
        loader = voxload.DataLoader(data, 2, cache=voxload.Cache(memory="1MiB", locality=locality))
        streams.append([int(batch[0].sum()) for _ in range(2) for batch in loader])
        loader.close()
    assert streams[0] == streams[1]
    data.close()


def test_what_is_presumed_is_what_all_ranks_of_a_group_have() -> None:
    """The least room, and the samples that all hold, as many as there is room for."""
    first = [Stock(3, 1, np.array([0, 1, 4]), np.array([7])), Stock(2, 2, np.array([1, 4, 0]), np.array([3, 7]))]
    second = [Stock(9, 0, np.array([2, 5]), np.zeros(0, np.int64)), Stock(9, 0, np.array([5]), np.array([2]))]
    line, held = presumed([first, second], 8)
    assert line.rooms == (Room(2, 1), Room(9, 0))
    assert line.sizes.tolist() == [1] * 8
    rows = sorted(zip(held.group.tolist(), held.sample.tolist(), held.tier.tolist(), strict=True))
    assert rows == [(0, 0, 0), (0, 1, 0), (0, 7, 1), (1, 5, 0)]
