"""coalesce: few requests, each range whole in one of them, and nothing longer or emptier than allowed."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from voxload.readers.remote.coalesce import GAP_BYTES, REQUEST_BYTES, Range, coalesce

ranges = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair))))
limits = st.integers(0, 200)


@given(ranges, limits, limits)
def test_every_range_lies_whole_in_one_request(wanted: list[Range], gap: int, limit: int) -> None:
    """Each range is a member of exactly one request and lies inside it, and no request is longer than its ranges."""
    runs = coalesce(wanted, gap=gap, limit=limit)
    assert sorted(itertools.chain.from_iterable(run.members for run in runs)) == list(range(len(wanted)))
    for run in runs:
        inside = [wanted[number] for number in run.members]
        assert inside == sorted(inside)
        assert (run.start, run.stop) == (inside[0][0], max(stop for _, stop in inside))


@given(ranges, limits, limits)
def test_requests_keep_to_the_limits(wanted: list[Range], gap: int, limit: int) -> None:
    """Only a single range makes a request longer than the limit, and no unwanted stretch is longer than the gap."""
    for run in coalesce(wanted, gap=gap, limit=limit):
        inside = [wanted[number] for number in run.members]
        assert run.stop - run.start <= limit or len(inside) == 1
        reached = run.start
        for start, stop in inside:
            assert start - reached <= gap
            reached = max(reached, stop)


@given(ranges, limits, limits)
def test_neighbours_are_not_parted_without_need(wanted: list[Range], gap: int, limit: int) -> None:
    """Two requests in a row could not have been one."""
    for before, after in itertools.pairwise(coalesce(wanted, gap=gap, limit=limit)):
        first = wanted[after.members[0]]
        assert first[0] - before.stop > gap or max(before.stop, first[1]) - before.start > limit


def test_the_limits_that_readers_use() -> None:
    """A shard of 16 MiB that is wanted whole is one request; chunks a gap apart share one, a byte more parts them."""
    chunk = 2**19
    whole = [(at, at + chunk) for at in range(0, REQUEST_BYTES, chunk)]
    assert [(run.start, run.stop) for run in coalesce(whole)] == [(0, REQUEST_BYTES)]
    assert len(coalesce([*whole, (REQUEST_BYTES, REQUEST_BYTES + 1)])) == 2
    assert len(coalesce([(0, 1), (1 + GAP_BYTES, 2 + GAP_BYTES)])) == 1
    assert len(coalesce([(0, 1), (2 + GAP_BYTES, 3 + GAP_BYTES)])) == 2
