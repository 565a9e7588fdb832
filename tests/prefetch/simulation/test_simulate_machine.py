"""Machines: rates between the entries of a table, and descriptions that are read or refused."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxload.errors import NotFoundError, UsageError
from voxload.prefetch import machines
from voxload.prefetch.line import Room
from voxload.prefetch.simulation.machine import Rates

TEMPLATE = (files(machines.__name__) / "template.toml").read_text(encoding="utf-8")


def test_rates_are_interpolated_and_clamped() -> None:
    """What was published for 1, 2, 4 and 8 clients holds there; 3 lie between 2 and 4, and 100 are as fast as 8."""
    rates = machines.load("nopfs-cluster").storage.read
    assert [rates.of(users) for users in (1, 2, 4, 8)] == [330e6, 730e6, 1540e6, 2870e6]
    assert rates.of(3) == pytest.approx(1135e6)
    assert rates.of(100) == 2870e6
    assert rates.best(3) == pytest.approx(1135e6)


@given(st.lists(st.tuples(st.integers(1, 99), st.floats(1, 1e12)), min_size=1, unique_by=lambda pair: pair[0]))
def test_rates_stay_between_their_neighbours(pairs: list[tuple[int, float]]) -> None:
    """Interpolation never leaves the range of the two entries beside it."""
    pairs.sort()
    rates = Rates(tuple(users for users, _ in pairs), tuple(total for _, total in pairs))
    for users in range(1, 101):
        low = max((pair for pair in pairs if pair[0] <= users), default=pairs[0])[1]
        high = min((pair for pair in pairs if pair[0] >= users), default=pairs[-1])[1]
        assert min(low, high) * (1 - 1e-9) <= rates.of(users) <= max(low, high) * (1 + 1e-9)
        assert rates.best(users) >= rates.of(users)


@pytest.mark.parametrize("pairs", [((), ()), ((0,), (1.0,)), ((2, 1), (1.0, 1.0)), ((1,), (0.0,)), ((1, 2), (1.0,))])
def test_senseless_rates_are_refused(pairs: tuple[tuple[int, ...], tuple[float, ...]]) -> None:
    """No entries, none for 0 users, not descending, not zero, no unequal columns."""
    with pytest.raises(UsageError, match="rates"):
        Rates(*pairs)


def test_the_published_figures() -> None:
    """A rank of Lassen and of Piz Daint has what the paper gave it."""
    lassen, daint = machines.load("lassen"), machines.load("pizdaint")
    assert lassen.room == Room(memory=25 * 2**30, disk=300 * 2**30)
    assert (lassen.staging.nbytes, lassen.staging.threads, lassen.memory.threads) == (5 * 2**30, 8, 4)
    assert [lassen.storage.read.of(ranks) for ranks in (1, 128, 256, 512, 2048)] == [
        512e6, 16384e6, 23532e6, 25600e6, 25600e6,
    ]  # fmt: skip
    assert daint.room == Room(memory=40 * 2**30, disk=0)
    assert (daint.staging.nbytes, daint.staging.threads, daint.memory.threads) == (5 * 2**30, 4, 2)
    assert lassen.slots(16 * 16_000_000) == 20
    assert lassen.step_seconds(64_000_000) == 1.0


def test_every_shipped_machine_is_read() -> None:
    """All names load, and say where their figures come from."""
    assert {"lassen", "nopfs-cluster", "pizdaint", "template"} == set(machines.names())
    for name in machines.names():
        assert machines.load(name).source


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    """A path is taken too; seconds of a step, slots and blocks without codec are alternatives."""
    text = TEMPLATE.replace('bytes_per_second = "1GB"', "seconds_per_step = 0.25", 1)
    text = text.replace('decode_bytes_per_second = "800MB"', "").replace('bytes = "4GiB"', "slots = 3")
    (tmp_path / "own.toml").write_text(text)
    machine = machines.load(str(tmp_path / "own.toml"))
    assert machine.step_seconds(10**9) == 0.25
    assert machine.slots(10**15) == 3
    assert math.isinf(machine.staging.decode)


WRONG = {
    "no such entry": ("threads = 8", "treads = 8", "[storage] threads: found nothing"),
    "unknown entry": ("threads = 8", "threads = 8\nspeed = 1", "[storage] speed: found unknown"),
    "unknown table": ("[node]", "[nodes]\n[node]", "nodes: found unknown"),
    "no size": ('bytes = "128GiB"', 'bytes = "128G"', "size '128G'"),
    "no rate": ('"10GB"', "0", "[network] bytes_per_second: found 0"),
    "negative": ("latency = 0.001", "latency = -1", "[storage] latency: found -1, expected seconds from 0 on"),
    "no pairs": ('read = [[1, "8GB"], [8, "50GB"]]', "read = 5", "[memory] read: found 5, expected pairs"),
    "descending": ('read = [[1, "8GB"], [8, "50GB"]]', "read = [[8, 5], [1, 5]]", "[memory] read: rates"),
    "no TOML": ("[node]", "[node", "expected TOML"),
    "no whole number": ("ranks = 4", "ranks = 0.5", "[node] ranks: found 0.5, expected a whole number"),
    "no table": ("[node]\n", "[nothing]\n", "node: found nothing, expected a table"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_entry(case: str) -> None:
    """What is wrong with a description is said with the file's name and the entry's."""
    old, new, words = WRONG[case]
    assert old in TEMPLATE
    with pytest.raises(UsageError) as caught:
        machines.parse(TEMPLATE.replace(old, new, 1), "own.toml")
    assert words in str(caught.value)
    assert str(caught.value).startswith("own.toml")


def test_no_such_machine() -> None:
    """The names that there are are listed."""
    with pytest.raises(NotFoundError, match="one of lassen, nopfs-cluster, pizdaint, template"):
        machines.load("summit")


def test_a_batch_must_fit() -> None:
    """Staging that holds no batch is refused with both sizes."""
    with pytest.raises(UsageError, match="5368709120 bytes for staging"):
        machines.load("lassen").slots(10**10)
