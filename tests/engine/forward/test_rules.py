"""Every rule for functions of torch: what a function gives of blocks is a block of what it gives of the whole."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.engine.forward.recorded import recorded
from tests.engine.forward.test_running import TOLERANCE, errors_of
from voxload.engine import Blocks, Loopback
from voxload.engine.forward.planning import plan_forward
from voxload.engine.forward.rule import Context
from voxload.engine.forward.running import run
from voxload.engine.forward.sharding import Factor, Sharding
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

SHAPE = (2, 4, 6, 7, 8)
EVEN = (2, 4, 8, 4, 8)


def _gen(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


MASK = torch.ones(SHAPE[2] * SHAPE[3] * SHAPE[4], SHAPE[2] * SHAPE[3] * SHAPE[4], dtype=torch.bool).tril(100).triu(-50)


def _tied(x: Tensor) -> Tensor:
    """Return a volume in which many voxels are the largest, all with a gradient of their own."""
    return torch.where(x.detach() > 0, x - x.detach() + 1, x.clamp(max=0.5))


WEIGHT, COLUMN, PLANE = _gen(4, 4, 3, 3, 3), _gen(4), _gen(7, 8)
SPLIT: dict[str, Callable[[Tensor], Any]] = {
    "arithmetic": lambda x: (x * 2 + 1) / (x.abs() + 1) - x**2,
    "with a table of positions": lambda x: x + PLANE,
    "with one number a channel": lambda x: x * COLUMN[:, None, None, None],
    "where": lambda x: torch.where(x > 0, x, 0.1 * x).masked_fill(x > 2, 2.0),
    "in place": lambda x: (x * 1).add_(x).mul_(0.5).clamp_(-1, 1),
    "augmented assignment": lambda x: (x * 1).__iadd__(x),
    "convolution with computed weights": lambda x: functional.conv3d(x, WEIGHT / WEIGHT.norm(), padding=1),
    "strided, dilated, grouped": lambda x: functional.conv3d(x, WEIGHT[:, :1], None, 2, 2, 2, 4),
    "far apart": lambda x: functional.conv3d(x, WEIGHT, None, 1, 12, 12),
    "far apart, strided": lambda x: functional.conv3d(x, WEIGHT[:, :2], None, 3, (14, 15, 16), (13, 14, 15), 2),
    "far apart, the same": lambda x: functional.conv3d(x, WEIGHT, padding="same", dilation=(9, 10, 11)),
    "same padding": lambda x: functional.conv3d(x, WEIGHT, padding="same"),
    "transposed convolution": lambda x: functional.conv_transpose3d(x, WEIGHT, None, 2, 1, 1),
    "maximum": lambda x: functional.max_pool3d(x, 3, 2, 1),
    "mean": lambda x: functional.avg_pool3d(x, 2),
    "nearest by factor": lambda x: functional.interpolate(x, scale_factor=2),
    "trilinear by size": lambda x: functional.interpolate(x, size=(9, 5, 11), mode="trilinear", align_corners=True),
    "largest of many": lambda x: _tied(x).amax((2, 4)) - _tied(-x).amin((2, 3, 4), keepdim=True)[..., 0, 0],
    "pooled to one maximum": lambda x: functional.adaptive_max_pool3d(_tied(x), 1),
    "planes pooled to one maximum": lambda x: functional.adaptive_max_pool2d(_tied(x).flatten(2, 3), (1, 1)),
    "mean of what is there": lambda x: functional.avg_pool3d(x, 3, 2, 1, count_include_pad=False),
    "mean by counts, rounded up": lambda x: functional.avg_pool3d(x, (3, 2, 2), 2, (1, 0, 1), ceil_mode=True),
    "mean of planes": lambda x: functional.avg_pool2d(x.mean(2), 2, ceil_mode=True),
    "zeros around it": lambda x: functional.pad(x, (1, 2, 0, 1, 3, 0)),
    "causal": lambda x: functional.pad(x, (0, 0, 0, 0, 2, 0), mode="replicate"),
    "mirrored": lambda x: functional.pad(x, (1, 1, 2, 1, 1, 2), mode="reflect"),
    "wrapped": lambda x: functional.pad(x, (2, 1, 1, 1, 1, 2), mode="circular"),
    "cropped": lambda x: functional.pad(x, (-1, -1, 0, -2, 0, 0)),
    "sliced": lambda x: x[:, 1:3, 1:, ::2, 2:-1],
    "one plane": lambda x: x[:, :, 3] * 2,
    "ellipsis and a new axis": lambda x: x[..., None, 1:].squeeze(-2),
    "rolled": lambda x: torch.roll(x, (2, -3), (2, 4)),
    "halves of the channels": lambda x: torch.cat([each * (place + 1) for place, each in enumerate(x.chunk(2, 1))], 1),
    "with coordinates as channels": lambda x: torch.cat([PLANE.expand(2, 1, 6, 7, 8), x, x * 2], 1),
    "stacked with a table": lambda x: torch.stack([x, PLANE.expand(2, 4, 6, 7, 8)], -1).sum(-1),
    "stacked": lambda x: torch.stack([x, x * 2], 1).sum(1),
    "channels last and a dense layer": lambda x: functional.linear(
        x.permute(0, 2, 3, 4, 1), COLUMN.expand(3, 4)
    ).movedim(-1, 1),
    "tokens": lambda x: (x.flatten(2).transpose(1, 2) * COLUMN).transpose(1, 2).reshape(x.shape),
    "dense layers of channels": lambda x: functional.conv1d(x.flatten(2), WEIGHT[:, :, 0, 0, :1], COLUMN).view(x.shape),
    "layer norm of channels": lambda x: functional.layer_norm(x.movedim(1, -1), (4,)).movedim(-1, 1),
    "softmax over channels": lambda x: x.softmax(1),
    "mean of the volume": lambda x: x.mean((2, 3, 4)),
    "mean of two axes, kept": lambda x: x - x.mean((2, 4), keepdim=True),
    "sum over one axis": lambda x: x.sum(3),
    "maximum of the volume": lambda x: x.amax((2, 3, 4)),
    "adaptive mean": lambda x: functional.adaptive_avg_pool3d(x, (2, 3, 1)),
    "squeeze and excitation": lambda x: (
        x * functional.adaptive_avg_pool3d(x, 1).flatten(1).sigmoid()[:, :, None, None, None]
    ),
    "group norm": lambda x: functional.group_norm(x, 2),
    "instance norm": functional.instance_norm,
    "batch norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "prelu": lambda x: functional.prelu(x, COLUMN),
    "expanded": lambda x: x * x[:, :1].expand(-1, 4, -1, -1, -1),
    "repeated channels": lambda x: x[:, :2].repeat(1, 2, 1, 1, 1),
    "sum of products over channels": lambda x: torch.einsum("bcdhw,ck->bkdhw", x, WEIGHT[:, :, 0, 0, 0]),
    "attention of channels": lambda x: (
        torch.matmul(x.movedim(1, -1)[..., None], x.movedim(1, -1)[..., None, :]).sum(-1).movedim(-1, 1)
    ),
    "softmax over the volume": lambda x: x.flatten(2).softmax(-1).view(x.shape) + x.log_softmax(4),
    "softmax over one axis": lambda x: (
        functional.softmax(x, 2) * functional.softmax(x * 2, dim=-2, dtype=torch.float64)
    ),
    "layer norm of the volume": lambda x: functional.layer_norm(x, (7, 8), PLANE, PLANE.cos(), 1e-3),
    "layer norm of channels and volume": lambda x: functional.layer_norm(x, SHAPE[1:]),
    "RMS norm of the volume": lambda x: functional.rms_norm(x, (7, 8), PLANE, 1e-3),
    "RMS norm of channels and volume": lambda x: functional.rms_norm(x, SHAPE[1:]),
    "few modes": lambda x: _low(torch.fft.rfftn(x, dim=(2, 3, 4))),
    "few modes of an orthonormal transform": lambda x: _low(torch.fft.rfftn(x, dim=(3, 2, 4), norm="ortho")),
    "few modes, shifted": lambda x: torch.view_as_real(
        torch.fft.fftshift(torch.fft.fftn(x, dim=(-3, -2, -1), norm="forward"), dim=(-3, -1))[..., 2:4, :2, 3:6]
    ),
    "other modes of the same transforms": lambda x: sum(
        torch.fft.rfftn(x * scale, dim=(2, 3, 4))[:, 1:, scale : 2 * scale, 1:3, -1:].abs() for scale in (1, 2)
    ),
    "transform of channels": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=4, dim=1),
    "written into channels": lambda x: _stored(x, (slice(None), 0), x[:, 1] * 2),
    "written into slices": lambda x: _stored(
        x, (..., slice(2, 5), slice(None), slice(1, None, 2)), x[:, :, 1:4, :, :4]
    ),
    "written into one plane": lambda x: _stored(x, (slice(None), slice(None), 3), x[:, :, 5] * 2),
    "written into one place": lambda x: _stored(x, (..., 2, 3, 1), x[..., 0, 0, 0]),
    "written into planes of planes": lambda x: _stored(x, (..., slice(1, 3), 2, slice(None)), x[:, :, 4:, 6]),
    "written from a table": lambda x: _stored(x, (slice(None), slice(None), 4), PLANE),
    "written from a number": lambda x: _stored(x, (slice(None), slice(None), slice(4, 6), 2), 1.5),
    "written with a new axis": lambda x: _stored(x, (slice(None), None, 2, slice(1, 2)), x[:, None, 0, 2:3]),
    "written one after the other": lambda x: _blended(x * 1),
    "flattened": lambda x: functional.linear(x.flatten(1), torch.ones(1, 1, dtype=x.dtype).expand(2, x[0].numel())),
}
"""Functions that move no more than they must."""


def _heads(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of two heads, the tokens of which are voxels."""
    tokens = x.flatten(2).transpose(1, 2)
    query, key, value = (
        (tokens * scale).view(x.shape[0], -1, 2, x.shape[1] // 2).transpose(1, 2) for scale in (1, 2, 3)
    )
    return query, key, value + 1


def _low(waves: Tensor) -> Tensor:
    """Return low modes, and real ones of a spectrum that has no others."""
    kept = torch.zeros_like(waves)
    kept[:, :, :2, -2:] = waves[:, :, :2, -2:]
    kept[..., :2, :3, 1:2] = waves[..., :2, :3, 1:2] * 2
    found: Tensor = torch.fft.irfftn(kept, s=(6, 7, 8), dim=(2, 3, 4))
    return found


def _stored(x: Tensor, where: tuple[Any, ...], value: Any) -> Tensor:
    y = x * 1
    y[where] = value
    return y


def _blended(y: Tensor) -> Tensor:
    for place in range(3):
        y[:, :, place] = y[:, :, place].clone() * (place / 3) + y[:, :, place - 3].clone() * (1 - place / 3)
    return y


GATHERED: dict[str, Callable[[Tensor], Any]] = {
    "attention of planes": lambda x: functional.scaled_dot_product_attention(*_heads(x.movedim(2, 1))).sum(-1),
    "attention of all tokens": lambda x: functional.scaled_dot_product_attention(*_heads(x)).flatten(2),
    "attention to the past": lambda x: functional.scaled_dot_product_attention(*_heads(x), is_causal=True, scale=0.7),
    "attention with a mask": lambda x: functional.scaled_dot_product_attention(*_heads(x), attn_mask=MASK),
    "attention with a table": lambda x: functional.scaled_dot_product_attention(*_heads(x), MASK.double()[None, :, :1]),
    "attention of the volume to itself": lambda x: functional.scaled_dot_product_attention(*(_heads(x)[:1] * 3)),
    "attention of a part of it": lambda x: functional.scaled_dot_product_attention(
        _heads(x[:, :, 2:])[0], *_heads(x)[1:]
    ),
}
"""Functions that make a part of what they take whole."""
ALIGNED: dict[str, Callable[[Tensor], Any]] = {
    "pixel unshuffle": lambda x: x.view(2, 4, 4, 2, 2, 2, 4, 2).permute(0, 1, 3, 5, 7, 2, 4, 6).reshape(2, 32, 4, 2, 4),
    "windows": lambda x: _windows(torch.roll(x, (1, 1, 1), (2, 3, 4))).softmax(-1).sum((1, 2)),
    "windows put back and rolled": lambda x: torch.roll(
        x.view(2, 4, 4, 2, 2, 2, 4, 2).mul(2).reshape(x.shape), (1, 1, 1), (2, 3, 4)
    ),
    "samples and depth as one": lambda x: (
        functional.conv2d(x.movedim(2, 1).flatten(0, 1), WEIGHT[..., 0], padding=1).reshape(2, 8, 4, 4, 8).movedim(1, 2)
    ),
}
"""Functions of axes that divide into parts."""


def _windows(x: Tensor) -> Tensor:
    batch, channels, depth, height, width = x.shape
    parts = x.view(batch, channels, depth // 2, 2, height // 2, 2, width // 2, 2).permute(0, 2, 4, 6, 3, 5, 7, 1)
    tokens = parts.reshape(-1, 8, channels)
    return (tokens @ tokens.transpose(-2, -1)).reshape(batch, -1, 8, 8)


class Runs(nn.Module):
    """One function, behind a weight so that there is a gradient."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.bend = nn.Parameter(torch.full((), 0.3))
        self._function = function

    def forward(self, x: Tensor) -> Any:
        """Return what it gives."""
        return self._function(x + self.bend * x.square())


def _planned(function: Callable[[Tensor], Any], shape: tuple[int, ...], **options: Any) -> Any:
    halves = [Factor(extent, axis, (0, extent // 2, extent)) for axis, extent in enumerate(shape[2:])]
    given = Sharding((*Sharding.whole(shape[:2]).dims, *((factor,) for factor in halves)))
    recording = recorded(Runs(function).double(), torch.empty(shape, dtype=torch.float64))
    return plan_forward(recording, [given], **options)


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("spatial", [(2, 1, 2), (1, 3, 1)], ids=str)
@pytest.mark.parametrize("name", [*SPLIT, *ALIGNED, *GATHERED])
def test_a_function_gives_split_what_it_gives_whole(name: str, spatial: tuple[int, int, int]) -> None:
    """Results and gradients, on blocks of different extents."""
    function, shape = (ALIGNED[name], EVEN) if name in ALIGNED else ((SPLIT | GATHERED)[name], SHAPE)
    errors = errors_of(Runs(function), _gen(*shape), spatial)
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("spatial", [(2, 1, 2), (1, 3, 1)], ids=str)
@pytest.mark.parametrize("name", [*SPLIT, *ALIGNED])
def test_ranks_that_own_nothing_take_part(name: str, spatial: tuple[int, int, int]) -> None:
    """A layer has left the volume to fewer ranks: the others send, receive, sum, and stay part of the graph."""
    function, shape = (SPLIT[name], SHAPE) if name in SPLIT else (ALIGNED[name], EVEN)
    larger = _gen(*shape[:2], *(2 * extent for extent in shape[2:]))
    model = Runs(lambda x: function(functional.max_pool3d(x, 2)))
    errors = errors_of(model, larger, spatial, min_width=6)
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.parametrize("name", [*SPLIT, *ALIGNED])
def test_nothing_runs_on_the_whole_that_has_a_split_form(name: str) -> None:
    """But for a reshape of all, which is what a flatten is, and modes that are few of a larger volume only."""
    function, shape = (SPLIT[name], SHAPE) if name in SPLIT else (ALIGNED[name], EVEN)
    found = {each.call.function.__name__ for each in _planned(function, shape).fallbacks}
    whole = {"flattened": {"flatten", "linear"}, "few modes": {"fft_rfftn"}}
    assert found <= whole.get(name.partition(" of ")[0], set())


def test_what_has_no_split_form_runs_whole_or_is_refused_by_name() -> None:
    """By its bytes; the reason is told."""
    plan = _planned(lambda x: x.sort(2).values, SHAPE)
    assert [(each.call.function.__name__, each.reason) for each in plan.fallbacks] == [("sort", "it has no split form")]
    errors = errors_of(Runs(lambda x: x.sort(2).values), _gen(*SHAPE), (2, 1, 2))
    assert max(errors.values()) <= TOLERANCE
    with pytest.raises(
        UsageError, match=r"sort in .*: found it has no split form; whole, it takes [\d,]+ bytes.*gather_limit"
    ):
        _planned(lambda x: x.sort(2).values, SHAPE, gather_limit=0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x if bool(x.mean() > 0) else -x,
        lambda x: x * x.sum().item(),
        lambda x: x * float(x[0, 0, 0, 0, 0]),
        lambda x: torch.from_numpy(x.detach().numpy()) * x,
        lambda x: x[x > 0],
    ],
    ids=["branch", "item", "float", "numpy", "mask"],
)
def test_what_decides_by_values_is_refused(function: Callable[[Tensor], Any]) -> None:
    """Before any message."""
    with pytest.raises(UsageError, match=r"values|shapes alone|indexes by tensors"):
        _planned(function, SHAPE)


ODD: dict[str, Callable[[Tensor], Any]] = {
    "numpy's names": lambda x: x.sum(axis=2),  # type: ignore[call-overload] # torch takes it
    "a stack by numpy's name": lambda x: torch.stack([x, x * 2], axis=-1).sum(-1),  # type: ignore[call-arg] # likewise
    "all by name": lambda x: functional.conv3d(input=x, weight=WEIGHT, padding=1),
    "a list by name": lambda x: torch.cat(tensors=[x, x], dim=1),
    "volume as the second": lambda x: functional.conv3d(torch.ones(1, 4, 3, 3, 3, dtype=x.dtype), x[:2, :, :3, :3, :3]),
    "another type of the same bytes": lambda x: x.view(torch.int64).view(torch.float64) * x,
}
"""Calls in a form that rules do not look for."""


@pytest.mark.parametrize("name", ODD)
def test_calls_in_another_form_run_on_the_whole(name: str) -> None:
    """And give what they give in one process."""
    assert _planned(ODD[name], SHAPE).fallbacks
    errors = errors_of(Runs(ODD[name]), _gen(*SHAPE), (2, 1, 2))
    assert max(errors.values()) <= TOLERANCE, errors


def _written_view(x: Tensor) -> Tensor:
    y = x * 1
    y.view(2, 4, -1).add_(1)
    return y


def _written_where(x: Tensor) -> Tensor:
    y = x * 1
    y[y > 0] = 0
    return y


def _written_table(x: Tensor) -> Tensor:
    table = torch.zeros(SHAPE, dtype=x.dtype)
    table.add_(x)
    return table


@pytest.mark.parametrize("function", [_written_view, _written_where, _written_table])
def test_writes_that_would_be_lost_are_refused(function: Callable[[Tensor], Tensor]) -> None:
    """Into a view that may be a copy of a block, by a mask, and into a tensor that every rank has whole."""
    with pytest.raises(UsageError, match=r"a write (into a volume|of what depends)|a split form"):
        _planned(function, SHAPE)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.layer_norm(x, (7, 8), PLANE.float(), None),
        lambda x: functional.softmax(x, 2),
        lambda x: x.sum((2, 3)),
        lambda x: functional.scaled_dot_product_attention(*_heads(x[:, :, :2])),
    ],
    ids=["layer norm", "softmax", "sum", "attention"],
)
def test_types_under_autocast_are_those_of_one_process(function: Callable[[Tensor], Any]) -> None:
    """On ranks that own nothing too: their peers send to them in this type."""
    model, x = Runs(function), _gen(*SHAPE).float()
    world = Loopback(ProcessGrid((3, 1, 1), 3))
    given = Sharding((*Sharding.whole(SHAPE[:2]).dims, (Factor(6, 0, (0, 3, 6, 6)),), (Factor(7),), (Factor(8),)))
    with torch.autocast("cpu", torch.bfloat16):
        wanted = model(x)
        plan = plan_forward(recorded(model, x), [given])

    def work(rank: int) -> Tensor:
        here = Context((rank, 0, 0), (3, 1, 1), world.rank(rank))
        with torch.autocast("cpu", torch.bfloat16):
            found: Tensor = run(model, (given.block(x, here.coords),), {}, [given], plan=plan, here=here)
        return found

    with torch.autocast("cpu", torch.bfloat16):
        assert {each.dtype for each in world.run(work)} == {wanted.dtype}


@pytest.mark.parametrize("spatial", [(2, 1, 2), (1, 3, 1)], ids=str)
def test_what_is_whole_takes_what_is_cut_by_slices(spatial: tuple[int, int, int]) -> None:
    """The volume is made whole for it, on every rank."""

    def function(x: Tensor) -> Tensor:
        return _stored(torch.zeros(SHAPE, dtype=x.dtype), (..., slice(2)), x[..., 4:6]) * x

    assert [each.call.function for each in _planned(function, SHAPE).fallbacks] == [Tensor.__setitem__]
    errors = errors_of(Runs(function), _gen(*SHAPE), spatial)
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.parametrize("function", [functional.dropout, functional.dropout3d])
def test_dropout_falls_on_the_same_elements_however_a_tensor_is_cut(function: Callable[..., Tensor]) -> None:
    """Of volumes and of tokens; a share of them, and the others are scaled up."""
    found = []
    for spatial in ((2, 1, 2), (1, 3, 1)):
        model = Runs(lambda x: functional.dropout(function(x, 0.25).flatten(2), 0.5).view(x.shape)).double()
        world = Loopback(ProcessGrid(spatial, prod(spatial)))
        given = Sharding.of_volume(Blocks.of(world.grid, SHAPE[2:]), leading=SHAPE[:2])
        ones = torch.ones(SHAPE, dtype=torch.float64)
        plan = plan_forward(recorded(model, ones), [given])
        whole = torch.full_like(ones, torch.nan)
        for rank in range(prod(spatial)):
            coords = world.grid.coords_of(rank)
            torch.manual_seed(3)  # as all ranks of a group have it
            here = Context(coords, spatial, world.rank(rank))
            part = run(model, (given.block(ones, coords),), {}, [given], plan=plan, here=here)
            given.block(whole, coords).copy_(part.detach())
        found.append(whole)
    assert torch.equal(*found)
    kept = found[0][found[0] != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1.3 / 0.75 / 0.5))
    assert 0 < len(kept) < ones.numel()
