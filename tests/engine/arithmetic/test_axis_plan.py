"""Plans of one line of ranks: coverage, both sides of every message, and what is printed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.layers.paddings import sources
from voxload.engine.arithmetic.axis_plan import PaddingMode, plan_axis


@st.composite
def lines(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...], PaddingMode]:
    """Draw bounds with thin and empty blocks, and needs that may reach anywhere."""
    widths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any))
    bounds = (0, *(sum(widths[: index + 1]) for index in range(len(widths))))
    starts = st.integers(-6, bounds[-1] + 4)
    needs = tuple((start, start + draw(st.integers(0, 12))) for start in (draw(starts) for _ in widths))
    return bounds, needs, draw(st.sampled_from(PaddingMode))


@given(lines())
def test_each_needed_position_comes_from_its_owner(
    line: tuple[tuple[int, ...], tuple[tuple[int, int], ...], PaddingMode],
) -> None:
    """Runs and gaps together tell, for each position, the owner's voxel or that there is none."""
    bounds, needs, outside = line
    plan = plan_axis(1, bounds, needs, outside)
    for place, (lo, hi) in enumerate(needs):
        found: list[int | None] = [-1] * (hi - lo)
        for run in plan.runs:
            if run.user == place:
                assert run.source + run.length <= bounds[run.owner + 1] - bounds[run.owner]
                for offset in range(run.length):
                    found[run.target + offset] = bounds[run.owner] + run.source + offset
        for start, stop in plan.at(place).gaps:
            found[start:stop] = [None] * (stop - start)
        assert found == sources(lo, hi, bounds[-1], outside)


@given(lines())
def test_both_sides_of_a_message_agree(
    line: tuple[tuple[int, ...], tuple[tuple[int, int], ...], PaddingMode],
) -> None:
    """What one rank sends is what the other expects, run by run, and nobody sends to itself."""
    plan = plan_axis(0, *line)
    sent = {(place, peer): runs for place in range(len(line[1])) for peer, runs in plan.at(place).outgoing}
    received = {(peer, place): runs for place in range(len(line[1])) for peer, runs in plan.at(place).incoming}
    assert sent == received
    assert all(source != target for source, target in sent)


def test_a_plan_prints_who_sends_what() -> None:
    """The text of a plan names owners, needs and messages."""
    plan = plan_axis(2, (0, 4, 8), ((-1, 5), (3, 9)), PaddingMode.CIRCULAR)
    assert str(plan) == "w: 0 has 0:4 needs -1:5, 1 has 4:8 needs 3:9; 1->0 7:8, 1->0 4:5, 0->1 3:4, 0->1 0:1"
