"""The primitive: values, exact adjoint, derivatives of first and second order."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.layers.paddings import sources
from voxload.engine import Loopback
from voxload.engine.arithmetic.axis_plan import AxisPlan, PaddingMode, plan_axis
from voxload.engine.run.collectives import gather, scatter_add
from voxload.grid import ProcessGrid


@st.composite
def plans(draw: st.DrawFn) -> AxisPlan:
    """Draw a plan over 1 to 4 ranks with thin and empty blocks, and needs of any kind."""
    widths = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any))
    bounds = (0, *(sum(widths[: index + 1]) for index in range(len(widths))))
    starts = st.integers(-4, bounds[-1] + 2)
    needs = tuple((start, start + draw(st.integers(0, 8))) for start in (draw(starts) for _ in widths))
    return plan_axis(draw(st.integers(0, 2)), bounds, needs, draw(st.sampled_from(PaddingMode)))


def _world(plan: AxisPlan) -> Loopback:
    """Return a world whose ranks lie along the plan's axis."""
    spatial = [1, 1, 1]
    spatial[plan.axis] = len(plan.needs)
    return Loopback(ProcessGrid((spatial[0], spatial[1], spatial[2]), len(plan.needs)))


def _tensor(plan: AxisPlan, extent: int) -> Tensor:
    """Return a random (2, 1, d, h, w) tensor with `extent` along the plan's axis and 2 along the others."""
    shape = [2, 1, 2, 2, 2]
    shape[2 + plan.axis] = extent
    return torch.randn(shape, dtype=torch.float64)


@given(plans(), st.sampled_from([0.0, -torch.inf, 3.0]))
@settings(deadline=None)
def test_gather_fetches_what_is_asked_for(plan: AxisPlan, fill: float) -> None:
    """Every rank gets the global volume's voxels, and the fill outside of it."""
    dim = 2 + plan.axis
    whole = _tensor(plan, plan.bounds[-1])
    world = _world(plan)

    def work(place: int) -> Tensor:
        block = whole.narrow(dim, plan.bounds[place], plan.bounds[place + 1] - plan.bounds[place])
        return gather(block, plan.at(place), fill=fill, exchange=world.rank(place))

    for (lo, hi), found in zip(plan.needs, world.run(work), strict=True):
        assert found.shape[dim] == hi - lo
        for offset, voxel in enumerate(sources(lo, hi, plan.bounds[-1], plan.outside)):
            plane = whole.select(dim, voxel or 0)
            wanted = torch.full_like(plane, fill) if voxel is None else plane
            assert torch.equal(found.select(dim, offset), wanted)


@given(plans())
@settings(deadline=None)
def test_scatter_add_is_the_adjoint_of_gather(plan: AxisPlan) -> None:
    """<Gx, y> equals <x, G*y> over all ranks."""
    world = _world(plan)

    def work(place: int) -> tuple[float, float, float]:
        x = _tensor(plan, plan.bounds[place + 1] - plan.bounds[place])
        y = _tensor(plan, plan.needs[place][1] - plan.needs[place][0])
        part, exchange = plan.at(place), world.rank(place)
        forth = gather(x, part, fill=0.0, exchange=exchange)
        back = scatter_add(y, part, exchange=exchange)
        return (forth * y).sum().item(), (x * back).sum().item(), (x.norm() * y.norm()).item()

    left, right, scale = (sum(column) for column in zip(*world.run(work), strict=True))
    assert abs(left - right) <= 1e-13 * max(scale, 1.0)


@given(plans(), st.lists(st.booleans(), min_size=4, max_size=4))
@settings(deadline=None)
def test_halos_keep_the_layout_of_the_block(plan: AxisPlan, are_last: list[bool]) -> None:
    """Both directions give the same values in the layout that they were given, whatever that of the other ranks is."""
    world, dim = _world(plan), 2 + plan.axis
    shape = [2, 3, 2, 2, 2]
    shape[dim] = plan.bounds[-1]
    whole = torch.randn(shape, dtype=torch.float64)
    shape[dim] = max(hi - lo for lo, hi in plan.needs)
    grads = torch.randn(shape, dtype=torch.float64)

    def work(place: int, *, is_mixed: bool) -> list[Tensor]:
        is_last = is_mixed and are_last[place]
        layout = torch.channels_last_3d if is_last else torch.contiguous_format
        (first, last), (lo, hi) = plan.bounds[place : place + 2], plan.needs[place]
        x = whole.narrow(dim, first, last - first).contiguous(memory_format=layout)
        y = grads.narrow(dim, 0, hi - lo).contiguous(memory_format=layout)
        part, exchange = plan.at(place), world.rank(place)
        found = [gather(x, part, fill=0.0, exchange=exchange), scatter_add(y, part, exchange=exchange)]
        for given_one, made in zip((x, y), found, strict=True):
            assert made.is_contiguous(memory_format=layout) or given_one.is_contiguous()
        return found

    for mixed, plain in zip(
        world.run(partial(work, is_mixed=True)), world.run(partial(work, is_mixed=False)), strict=True
    ):
        assert all(map(torch.equal, mixed, plain))


@pytest.mark.long
def test_derivatives_of_both_directions() -> None:
    """Gradcheck and gradgradcheck hold for a gather that wraps around, crops and repeats, and for its adjoint."""
    world = Loopback(ProcessGrid())
    for outside in PaddingMode:
        plan = plan_axis(1, (0, 3), ((-4, 5),), outside)
        crop = plan_axis(2, (0, 3), ((1, 3),), outside)

        def forth(x: Tensor, plan: AxisPlan = plan, crop: AxisPlan = crop) -> Tensor:
            wide = gather(x, plan.at(0), fill=2.0, exchange=world.rank(0))
            return gather(wide, crop.at(0), fill=0.0, exchange=world.rank(0)).square()

        def back(y: Tensor, plan: AxisPlan = plan) -> Tensor:
            return scatter_add(y, plan.at(0), exchange=world.rank(0)).square()

        for function, extents in ((forth, (2, 3, 3)), (back, (2, 9, 1))):
            x = torch.randn(1, 2, *extents, dtype=torch.float64, requires_grad=True)
            assert torch.autograd.gradcheck(function, (x,))
            assert torch.autograd.gradgradcheck(function, (x,))


@given(plans())
@settings(deadline=None, max_examples=50)
def test_second_derivatives_across_ranks(plan: AxisPlan) -> None:
    """The gradient of a gradient's square, over all ranks, equals that of the dense matrix of the plan."""
    world = _world(plan)
    blocks = [_tensor(plan, hi - lo) for lo, hi in zip(plan.bounds[:-1], plan.bounds[1:], strict=True)]
    weights = [_tensor(plan, hi - lo) for lo, hi in plan.needs]
    dim = 2 + plan.axis

    def work(place: int) -> Tensor:
        x = blocks[place].clone().requires_grad_()
        y = gather(x, plan.at(place), fill=0.0, exchange=world.rank(place))
        (first,) = torch.autograd.grad((y**3 * weights[place]).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        return second

    found = torch.cat(world.run(work), dim)
    matrices = []
    for lo, hi in plan.needs:
        matrix = torch.zeros(hi - lo, plan.bounds[-1], dtype=torch.float64)
        for offset, voxel in enumerate(sources(lo, hi, plan.bounds[-1], plan.outside)):
            if voxel is not None:
                matrix[offset, voxel] = 1.0
        matrices.append(matrix)
    x = torch.cat(blocks, dim).requires_grad_()
    y = torch.movedim(torch.tensordot(torch.cat(matrices), x, dims=([1], [dim])), 0, dim)
    (first,) = torch.autograd.grad((y**3 * torch.cat(weights, dim)).sum(), x, create_graph=True)
    (wanted,) = torch.autograd.grad(first.square().sum(), x)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-10)


def test_who_watches_sees_one_operator() -> None:
    """A mode of torch sees the gather and not its copies; without one there is nothing between, and values are alike.

    Transforms of torch.func find the same gradient.
    """

    class Seen(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's
        """Notes the names of operators."""

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call] # torch's
            self.names: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    world = Loopback(ProcessGrid())
    part = plan_axis(1, (0, 3), ((-2, 4),), PaddingMode.CIRCULAR).at(0)
    x = torch.randn(1, 2, 2, 3, 2, dtype=torch.float64)
    plain = gather(x, part, fill=0.0, exchange=world.rank(0))
    with Seen() as seen:
        watched = gather(x, part, fill=0.0, exchange=world.rank(0))

    def total(x: Tensor) -> Tensor:
        return gather(x, part, fill=0.0, exchange=world.rank(0)).square().sum()

    by_transform = torch.func.grad(total)(x)
    leaf = x.clone().requires_grad_()
    total(leaf).backward()  # type: ignore[no-untyped-call] # torch's
    assert seen.names == ["voxload.gather.default"]
    assert torch.equal(watched, plain)
    assert leaf.grad is not None
    assert torch.equal(by_transform, leaf.grad)
