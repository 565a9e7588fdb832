"""The front: state_dict, modes, random numbers of the head, shapes, copies."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.engine.virtual import worst_error
from voxload.engine import Loopback, Sharded, explain, shard
from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow


class Small(nn.Module):
    """A network with nested blocks, a bare parameter, a buffer and dropout in the head."""

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.Sequential(nn.ReLU(), nn.MaxPool3d(2)))
        self.tail = nn.ModuleDict({"fc": nn.Linear(2 * 4 * 3 * 4, 16), "drop": nn.Dropout(dropout), "none": None})  # type: ignore[dict-item]
        self.gain = nn.Parameter(torch.ones(16))
        self.register_buffer("offset", torch.full((16,), 0.5))
        self.offset: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return 16 features."""
        hidden = self.tail["drop"](self.tail["fc"](torch.flatten(self.body(x), 1)))
        if self.training:
            hidden = functional.dropout(hidden, 0.25)
        result: Tensor = hidden * self.gain + self.offset
        return result


SHAPE = (8, 6, 9)


def _world(spatial: tuple[int, int, int], models: list[nn.Module]) -> tuple[Loopback, list[nn.Module]]:
    """Return a loopback world and its shards, one per model."""
    grid = ProcessGrid(spatial, len(models))
    world = Loopback(grid)
    return world, [
        shard(model, grid.at(rank), shape=SHAPE, exchange=world.rank(rank)) for rank, model in enumerate(models)
    ]


def _blocks(x: Tensor, spatial: tuple[int, int, int]) -> list[Tensor]:
    """Cut `x` into one block per rank."""
    count = spatial[0] * spatial[1] * spatial[2]
    return [
        x[(slice(None), slice(None), *ProcessGrid(spatial, count, rank).block(x.shape[2:]).slices)]
        for rank in range(count)
    ]


def test_checkpoints_go_both_ways() -> None:
    """Names, order and values of the state are the model's, and loading into one changes the other."""
    model = Small()
    _, shards = _world((2, 1, 1), [model, copy.deepcopy(model)])
    split = shards[0]
    assert isinstance(split, Sharded)
    assert list(split.state_dict()) == list(model.state_dict())
    assert [name for name, _ in split.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert all(a is b for a, b in zip(split.parameters(), model.parameters(), strict=True))
    other = Small()
    split.load_state_dict(other.state_dict())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    split.double()
    assert all(tensor.dtype is torch.float64 for tensor in model.state_dict().values())
    assert model.body[0].padding == (1, 1, 1)  # the model itself still pads


def test_one_block_costs_nothing() -> None:
    """With a spatial grid of (1, 1, 1) the model itself comes back, whatever it does."""
    model = nn.Sequential(nn.BatchNorm3d(1))
    assert shard(model, ProcessGrid(world_size=4, rank=3)) is model


def test_dropout_is_equal_on_all_ranks_of_a_group() -> None:
    """Layers and functions that draw numbers after the flatten draw the same on each rank, and anew each time."""
    spatial = (2, 1, 2)
    x = torch.randn(3, 1, *SHAPE)
    model = Small()
    world, shards = _world(spatial, [copy.deepcopy(model) for _ in range(4)])
    blocks = _blocks(x, spatial)
    first = world.run(lambda rank: shards[rank](blocks[rank]).detach())
    second = world.run(lambda rank: shards[rank](blocks[rank]).detach())
    for found in (first, second):
        assert all(torch.equal(found[0], other) for other in found[1:])
    assert not torch.equal(first[0], second[0])
    for split in shards:
        split.eval()
    evaluated = world.run(lambda rank: shards[rank](blocks[rank]).detach())
    torch.testing.assert_close(evaluated[0], model.eval()(x).detach())
    torch.testing.assert_close(evaluated[3], evaluated[0])


def test_the_seed_decides_and_the_head_leaves_no_trace() -> None:
    """The same seed gives the same masks, and whatever the head draws, the ranks' own streams go on as before."""
    x = torch.randn(2, 1, *SHAPE)
    blocks = _blocks(x, (2, 1, 1))
    model = Small()
    results = []
    for _ in range(2):
        world, shards = _world((2, 1, 1), [copy.deepcopy(model), copy.deepcopy(model)])
        torch.manual_seed(5)
        results.append((world.run(lambda rank, s=shards: s[rank](blocks[rank]).detach())[0], torch.rand(1)))  # type: ignore[misc]
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.long
def test_shape_may_come_from_the_model_or_from_the_blocks() -> None:
    """CosmoFlow names its shape; without one, every call agrees on its own, also with uneven blocks."""
    x = torch.randn(1, 4, 32, 32, 32, dtype=torch.float64)
    errors = worst_error(CosmoFlow(32, dropout=0.0).double(), x, (1, 1, 2), shape=None)
    assert max(errors.values()) <= 1e-12, errors
    model = nn.Sequential(nn.Conv3d(1, 1, 3, padding=1), nn.Flatten())
    grid = ProcessGrid((2, 1, 1), 2)
    world = Loopback(grid)
    shards = [shard(model, grid.at(rank), exchange=world.rank(rank)) for rank in range(2)]
    for extent, cut in ((5, 2), (7, 6), (5, 1)):
        x = torch.randn(1, 1, extent, 4, 4)
        blocks = [x[:, :, :cut], x[:, :, cut:]]
        for found in world.run(lambda rank, b=blocks: shards[rank](b[rank]).detach()):  # type: ignore[misc]
            torch.testing.assert_close(found, model(x).detach())


def _outcomes(spatial: tuple[int, int, int], inputs: list[Tensor], models: list[nn.Module]) -> list[str]:
    """Return the error that each rank gets."""
    world, shards = _world(spatial, models)

    def work(rank: int) -> str:
        with pytest.raises((UsageError, InternalError)) as caught:
            shards[rank](inputs[rank])
        return str(caught.value)

    return world.run(work)


@pytest.mark.long
def test_inputs_that_do_not_fit_are_refused_on_all_ranks() -> None:
    """One rank's wrong block, batch, type or mode gives every rank the same error, which names the rank."""
    good = _blocks(torch.randn(2, 1, *SHAPE), (2, 1, 1))
    cases: dict[str, Tensor] = {
        "block of rank 1: found shape": good[1][:, :, 1:],
        r"block of rank 1: found shape \(1, ": good[1][:1],
        "input of rank 1: found 4 dimensions": good[1][0],
        "block of rank 1: found torch.float64": good[1].double(),
        "input of rank 1: found no floating-point": good[1].int(),
        "rank 1: found other settings": good[1].clone().requires_grad_(),
    }
    for match, wrong in cases.items():
        texts = _outcomes((2, 1, 1), [good[0], wrong], [Small(), Small()])
        assert texts[0] == texts[1]
        with pytest.raises(UsageError, match=match):
            raise UsageError(texts[0])


def test_unequal_networks_are_refused_on_all_ranks() -> None:
    """Ranks that built different models find out before the first message."""
    other = Small()
    other.body[0] = nn.Conv3d(1, 2, 5, padding=2)
    texts = _outcomes((2, 1, 1), _blocks(torch.randn(1, 1, *SHAPE), (2, 1, 1)), [Small(), other])
    assert texts[0] == texts[1]
    assert "rank 1: found another network or plan" in texts[0]


def test_a_copy_runs_on_its_own_parameters() -> None:
    """A deep copy, such as a moving average keeps, is independent and runs over the same connections."""
    x = torch.randn(1, 1, *SHAPE)
    blocks = _blocks(x, (2, 1, 1))
    model = Small(0.0).eval()
    world, shards = _world((2, 1, 1), [model, model])
    copies = [copy.deepcopy(split) for split in shards]
    wanted = model(x).detach()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    found = world.run(lambda rank: copies[rank](blocks[rank]).detach())
    torch.testing.assert_close(found[0], wanted)
    assert not torch.allclose(world.run(lambda rank: shards[rank](blocks[rank]).detach())[0], wanted)


def test_explain_names_layers_blocks_and_bytes() -> None:
    """The table gives each layer's sizes, this rank's block and what it receives."""
    table = explain(CosmoFlow(32), (32, 32, 32), ProcessGrid((2, 1, 1), 2, 1), dtype=torch.float64).splitlines()
    assert len(table) == 1 + 3 * 2 + 1
    first = table[1].split()
    assert first[:4] == ["features.0.0", "Conv3d", "32x32x32", "32x32x32"]
    assert "[16:32, 0:32, 0:32]" in table[1]
    assert first[-4:-2] == ["1", f"{4 * 32 * 32 * 8 / 1024:.1f}"]
    assert table[-1].split()[-4:-2] == ["1", f"{128 * 4 * 4 * 4 * 8 / 1024:.1f}"]
