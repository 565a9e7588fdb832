"""The simulator: times that follow by hand, conservation of bytes, bounds that hold, and two models that agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.errors import UsageError
from voxload.prefetch import machines, policies
from voxload.prefetch.events import SourceKind
from voxload.prefetch.line import EpochOrder, Line, Room
from voxload.prefetch.order.replays import shuffled_orders
from voxload.prefetch.simulate import Machine, Model, Outcome, Workload, optimum_storage_bytes, run, simulate
from voxload.prefetch.simulation.machine import Network, NodeTier, Rates, Staging, Storage

MB = 1_000_000


def flat(rate: float) -> Rates:
    """Return a rate that does not depend on the number of users."""
    return Rates((1,), (rate,))


PLAIN = Machine(
    name="plain",
    source="tests",
    ranks_per_node=1,
    compute_rate=0.0,
    compute_seconds=1.0,
    storage=Storage(latency=0.0, threads=4, read=flat(100 * MB)),
    network=Network(latency=0.0, threads=4, rate=1000 * MB),
    memory=NodeTier(10**12, 4, flat(10_000 * MB), flat(10_000 * MB)),
    disk=None,
    staging=Staging(0, 4, threads=4, decode=float("inf")),
)
"""100 MB/s of storage for all together, and everything else much faster."""


def line_of(samples: int, groups: int, *, size: int = 10 * MB, room: int = 10**12) -> Line:
    """Return a line of equal blocks and equal rooms in memory."""
    return Line(np.full(samples, size, np.int64), (Room(room, 0),) * groups)


def outcome(machine: Machine, name: str, model: Model, *, compute: float, epochs: int = 1) -> Outcome:
    """Train on 40 blocks of 10 MB with 2 groups."""
    orders = shuffled_orders(40, 2, batch=1, seed=0, epochs=epochs)
    return simulate(machine, orders, line_of(40, 2), policies.named(name), compute, model=model)


@pytest.mark.parametrize("model", Model)
def test_storage_bound_by_hand(model: Model) -> None:
    """With little to compute, all bytes at the storage's rate, and the last step."""
    found = outcome(PLAIN, "staging", model, compute=0.01)
    assert found.seconds == pytest.approx(400 / 100 + 0.01, rel=0.01)
    assert found.storage_bytes == 400 * MB


@pytest.mark.parametrize("model", Model)
def test_compute_bound_by_hand(model: Model) -> None:
    """With much to compute, only the first batches are waited for: 4 blocks each share the storage at first."""
    found = outcome(PLAIN, "staging", model, compute=1.0)
    assert found.compute == 20.0
    assert 20 + 0.2 <= found.seconds <= 20 + 0.8 + 1e-6
    assert found.bound.compute == 20.0
    assert found.bound.seconds == pytest.approx(20.2)


@pytest.mark.parametrize("model", Model)
def test_without_staging_by_hand(model: Model) -> None:
    """Nothing is fetched while computing: each step takes both."""
    found = outcome(PLAIN, "none", model, compute=1.0)
    assert found.seconds == pytest.approx(20 * (1.0 + 20 / 100), rel=1e-6)
    assert found.stall == pytest.approx(4.0, rel=1e-6)


@pytest.mark.parametrize("model", Model)
def test_latency_by_hand(model: Model) -> None:
    """A request waits before its first byte; without staging, every step does."""
    slow = replace(PLAIN, storage=replace(PLAIN.storage, latency=0.5))
    slow = replace(slow, storage=replace(slow.storage, threads=1))
    found = outcome(slow, "none", model, compute=1.0)
    assert found.seconds == pytest.approx(20 * (1.0 + 0.5 + 20 / 100), rel=0.12 if model is Model.STEPS else 1e-6)


@pytest.mark.parametrize("model", Model)
def test_the_second_epoch_comes_from_tiers(model: Model) -> None:
    """Where all fits, the storage is read once; later epochs only compute."""
    found = outcome(PLAIN, "clairvoyant", model, compute=0.1, epochs=3)
    assert [epoch.storage_bytes for epoch in found.epochs][1:] == [0, 0]
    assert found.storage_bytes == 400 * MB <= found.stored_bytes[SourceKind.MEMORY]
    assert found.epochs[2].stall == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize("model", Model)
def test_lines_share_the_storage(model: Model) -> None:
    """Three lines take as long as one whose storage has a third of the rate, and move three times as much."""
    orders = shuffled_orders(60, 2, batch=2, seed=1, epochs=2)
    line, policy = line_of(60, 2, room=150 * MB), policies.named("clairvoyant")
    three = simulate(PLAIN, orders, line, policy, 0.2, lines=3, model=model)
    third = replace(PLAIN, storage=replace(PLAIN.storage, read=flat(100 * MB / 3)))
    one = simulate(third, orders, line, policy, 0.2, model=model)
    assert three.seconds == pytest.approx(one.seconds)
    assert three.bytes_by_source == {source: 3 * nbytes for source, nbytes in one.bytes_by_source.items()}


@pytest.mark.parametrize("model", Model)
def test_ranks_share_a_node(model: Model) -> None:
    """Four ranks on a node read its disk by turns: as long as alone with a quarter of it."""
    orders = [EpochOrder(epoch, np.arange(40).reshape(4, 10, 1)) for epoch in range(3)]
    line = Line(np.full(40, 10 * MB, np.int64), (Room(0, 10**12),) * 4)
    seconds = []
    for ranks, rate in ((1, 10 * MB), (4, 40 * MB)):
        disk = NodeTier(10**13, 2, flat(rate), flat(10**12))
        machine = replace(PLAIN, disk=disk, ranks_per_node=ranks)
        seconds.append(simulate(machine, orders, line, policies.named("lru"), 0.001, model=model).seconds)
    assert seconds[0] == pytest.approx(seconds[1], rel=0.02)
    assert seconds[0] == pytest.approx(400 / 100 + 2 * 100 / 10, rel=0.1)


@pytest.mark.parametrize("model", Model)
def test_stored_sizes_are_what_the_storage_reads(model: Model) -> None:
    """Compressed blocks cost the storage less, and tiers as much as ever."""
    orders = shuffled_orders(40, 2, batch=1, seed=0, epochs=2)
    workload = Workload(line_of(40, 2), orders, 0.01, storage_sizes=np.full(40, MB, np.int64))
    found = run(PLAIN, workload, policies.named("clairvoyant"), model=model)
    assert found.storage_bytes == 40 * MB
    assert found.stored_bytes[SourceKind.MEMORY] >= 400 * MB


@settings(max_examples=25, deadline=None)
@given(
    groups=st.integers(1, 4),
    batch=st.integers(1, 3),
    samples=st.integers(4, 30),
    name=st.sampled_from(policies.NAMES),
    model=st.sampled_from(Model),
    room=st.integers(0, 200),
    compute=st.sampled_from([0.0, 0.05, 0.5]),
    has_disk=st.booleans(),
)
def test_laws(  # noqa: PLR0917 - what hypothesis draws
    groups: int, batch: int, samples: int, name: str, model: Model, room: int, compute: float, has_disk: bool
) -> None:
    """Every access is delivered once; no run beats the bounds; times add up; equal runs are equal."""
    disk = NodeTier(room * MB, 1, flat(50 * MB), flat(30 * MB)) if has_disk else None
    machine = replace(PLAIN, disk=disk, ranks_per_node=2)
    rooms = (Room(room * MB, machine.room.disk),) * groups
    line = Line(np.full(samples, 7 * MB, np.int64), rooms)
    orders = shuffled_orders(samples, groups, batch=batch, seed=room, epochs=3)
    found = simulate(machine, orders, line, policies.named(name), compute, model=model)
    accesses = sum(int((order.samples >= 0).sum()) for order in orders)
    assert sum(found.bytes_by_source.values()) == accesses * 7 * MB
    # What is fetched ahead lies in slots: they spare a few reads, as if there were so much more room.
    staged = Line(line.sizes, (Room(rooms[0].memory + 4 * batch * 7 * MB, rooms[0].disk),) * groups)
    assert found.storage_bytes >= optimum_storage_bytes(orders, line if model is Model.STEPS else staged)
    assert found.seconds >= found.bound.seconds * (1 - 1e-9)
    assert found.seconds == pytest.approx(found.compute + found.stall)
    assert found.stall >= 0
    assert sum(epoch.seconds for epoch in found.epochs) == pytest.approx(found.seconds)
    assert sum(epoch.stall for epoch in found.epochs) == pytest.approx(found.stall)
    assert found == simulate(machine, orders, line, policies.named(name), compute, model=model)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("name", policies.NAMES)
@pytest.mark.parametrize(("room", "compute"), [(1000, 0.1), (250, 0.1), (250, 0.8)])
def test_the_models_agree(name: str, room: int, compute: float) -> None:
    """Bytes by step and events give times within 10 % of each other.

    Planners read up to a tenth less of the storage than planned: what lies in a tier when it is fetched ahead need not
    be there any more when it is used.
    """
    line = Line(np.full(96, 10 * MB, np.int64), (Room(room * MB // 2, room * MB // 2),) * 4)
    disk = NodeTier(10**12, 2, Rates((1, 4), (400 * MB, 1000 * MB)), flat(1000 * MB))
    read = Rates((1, 4), (60 * MB, 200 * MB))
    machine = replace(PLAIN, disk=disk, storage=Storage(0.001, 8, read), staging=replace(PLAIN.staging, slots=8))
    orders = shuffled_orders(96, 4, batch=2, seed=3, epochs=3)
    events, steps = (simulate(machine, orders, line, policies.named(name), compute, model=model) for model in Model)
    assert steps.seconds == pytest.approx(events.seconds, rel=0.10)
    assert 0.9 * steps.storage_bytes <= events.storage_bytes <= steps.storage_bytes


def test_what_does_not_fit_is_refused() -> None:
    """Orders of other groups, no epochs, and batches that are larger than the staging."""
    orders = shuffled_orders(8, 2, batch=2, seed=0, epochs=1)
    policy = policies.named("staging")
    with pytest.raises(UsageError, match="an order of 2 groups"):
        simulate(PLAIN, orders, line_of(8, 3), policy, 1.0)
    with pytest.raises(UsageError, match="no step"):
        simulate(PLAIN, [], line_of(8, 2), policy, 1.0)
    with pytest.raises(UsageError, match="for staging"):
        simulate(machines.load("lassen"), orders, line_of(8, 2, size=10**10), policy, 1.0)
