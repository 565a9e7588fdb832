"""Allotment: nobody has more than their quota, all together never more than there is, what one leaves others have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voxload.serve.tenancy.allotment import Need, Quota, Quotas, allotted

GIB = 2**30


def memory(*tenants: Need, of: int, default: int = 100 * GIB, **quotas: int) -> list[int]:
    """Return the bytes that tenants may use; quotas by ``user1``."""
    found = Quotas(Quota(default), {int(name[4:]): Quota(most) for name, most in quotas.items()})
    return [one.memory for one in allotted(tenants, memory=of, reads=8, quotas=found)]


def job(user: int, has: int = 0) -> Need:
    """Return a tenant with jobs."""
    return Need(user, is_active=True, has=has)


def idle(user: int, has: int) -> Need:
    """Return one without."""
    return Need(user, is_active=False, has=has)


def test_one_has_all_and_two_have_halves() -> None:
    """As long as nobody said otherwise."""
    assert memory(job(1), of=12) == [12]
    assert memory(job(1), job(2), of=12) == [6, 6]


def test_what_one_may_not_have_others_may() -> None:
    """In equal parts, up to their own quotas."""
    assert memory(job(1), job(2), job(3), of=12, user1=2) == [2, 5, 5]
    assert memory(job(1), job(2), job(3), of=12, user1=2, user2=4) == [2, 4, 6]
    assert memory(job(1), of=12, user1=0) == [0]


def test_tenants_without_jobs_keep_what_is_left() -> None:
    """And never take more than they have."""
    assert memory(idle(1, 5), of=12) == [5]
    assert memory(job(1), idle(2, 5), of=12, user1=9) == [9, 3]
    assert memory(job(1), idle(2, 5), of=12) == [12, 0]


def test_tenants_of_one_user_share_a_quota() -> None:
    """Those with jobs first."""
    assert memory(job(1), job(1), job(2), of=100, user1=10, user2=10) == [5, 5, 10]
    assert memory(job(1), idle(1, 5), of=100, user1=10) == [10, 0]


def test_reads_go_by_shares() -> None:
    """Everyone has one."""
    quotas = Quotas(Quota(9), {1: Quota(9, share=3.0)})
    found = allotted([job(1), job(2), idle(3, 1)], memory=9, reads=8, quotas=quotas)
    assert [one.reads for one in found] == [6, 2, 1]


NEEDS = st.lists(st.builds(Need, st.integers(0, 3), st.booleans(), st.integers(0, 50)), max_size=6)
QUOTAS = st.dictionaries(st.integers(0, 3), st.builds(Quota, st.integers(0, 60), st.floats(0.1, 9)))


@given(tenants=NEEDS, room=st.integers(0, 100), default=st.integers(0, 100), quotas=QUOTAS)
def test_whoever_is_there(tenants: list[Need], room: int, default: int, quotas: dict[int, Quota]) -> None:
    """Budgets hold, and no byte is left that somebody with jobs might have."""
    known = Quotas(Quota(default), quotas)
    found = allotted(tenants, memory=room, reads=4, quotas=known)
    assert sum(one.memory for one in found) <= room
    assert all(one.memory >= 0 and one.reads >= 1 for one in found)
    for user in {one.user for one in tenants}:
        mine = sum(one.memory for one, need in zip(found, tenants, strict=True) if need.user == user)
        assert mine <= known.find(user).memory
    wants = {one.user for one in tenants if one.is_active}
    most = sum(known.find(user).memory for user in wants)
    active = sum(one.memory for one, need in zip(found, tenants, strict=True) if need.is_active)
    assert active == min(room, most)
