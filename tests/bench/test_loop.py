"""bench/loop.py: its verdicts are made of the figures of voxload alone, and the peers' stand beside them."""

from __future__ import annotations

import pytest

from bench.looping import beside, ready
from bench.looping.beside import Loop, Took
from bench.looping.ready import Setting
from voxload.benchmark.measure.turns import Turns


@pytest.mark.parametrize(
    ("p50", "p99", "au", "met"),
    [
        (0.1, 0.3, 0.98, [True, True, True]),
        (0.11, 0.3, 0.98, [False, True, True]),
        (0.1, 0.31, 0.98, [True, False, True]),
        (0.1, 0.3, 0.979, [True, True, False]),
    ],
)
def test_a_ready_batch_is_judged_by_its_wait(p50: float, p99: float, au: float, met: list[bool]) -> None:
    """Middle, tail and use of the loop's time, each by itself; no peer is judged."""
    own, peer = (Setting("npy", 32, 2, 8, loader) for loader in ("voxload", "torch-npy"))
    figures = {"p50": p50, "p99": p99, "au": au}
    found = ready.outcome(Turns({own: (figures,), peer: ({"p50": 9.0, "p99": 9.0, "au": 0.1},)}, others=(0.0,)))
    assert [finding.is_met for finding in found.findings] == met
    assert [row[1] for row in found.sheets[0].rows] == ["voxload", "torch-npy"]


@pytest.mark.parametrize(("beside_own", "is_met"), [(0.0306, True), (0.0307, False)])
def test_a_loop_is_judged_by_what_another_process_takes_too(beside_own: float, is_met: bool) -> None:
    """What reading takes of cores and memory is no part of it."""
    own, peer = (Loop(64, "python", loader) for loader in ("voxload", "torch-h5py"))
    turns = Turns({own: (Took(0.02, beside_own, 0.03),), peer: (Took(0.02, 0.09, 0.03),)}, others=(0.0,))
    found = beside.outcome(turns)
    assert [finding.is_met for finding in found.findings] == [is_met]
    assert found.sheets[0].rows[1] == ("64^3, python, torch-h5py", "4.500", "1.500", "3.000")
