"""Shares: training and held-out samples together get a node's room, and no more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voxload.loader.cache import Cache
from voxload.training.data import split_cache

sizes = st.integers(10**4, 2**40)


@given(memory=sizes, disk=sizes, training=st.integers(1, 10**4), validation=st.integers(1, 10**3))
def test_room_is_divided_by_samples(memory: int, disk: int, training: int, validation: int) -> None:
    """Shares are as the numbers of samples are, to a byte, in folders of their own; nothing else differs."""
    whole = Cache(memory=memory, disk="tier", disk_size=disk * 1000, policy="lru", clairvoyant=False, peers="node")
    samples = {"training": training, "validation": validation}
    named = split_cache(whole, samples, epochs={"training": 3, "validation": 3})
    assert list(named) == list(samples)
    parts = list(named.values())
    for room in ("memory_bytes", "disk_bytes"):
        given_, all_ = [getattr(part, room) for part in parts], getattr(whole, room)
        assert all_ - 2 <= sum(given_) <= all_
        assert abs(given_[1] - all_ * validation / (training + validation)) <= 1 + all_ * 1e-12
    assert [str(part.folder) for part in parts] == ["tier/training", "tier/validation"]
    assert {(part.policy, part.clairvoyant, part.peers, part.epochs) for part in parts} == {("lru", False, "node", 3)}


def test_without_a_disk_there_is_none() -> None:
    """Memory alone is shared as memory alone."""
    for part in split_cache(Cache(memory="1MiB"), {"a": 3, "b": 1}, epochs={"a": 1, "b": 1}).values():
        assert part.folder is None
        assert part.disk_bytes == 0
