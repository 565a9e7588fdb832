"""Networks of the shapes that people write, over virtual ranks, against one process in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.engine.virtual import World, second_derivative, worst_error
from tests.support.splitting.compare import error
from voxload.engine import all_sum, explain
from voxload.engine.graph.program import compile_program
from voxload.engine.graph.trace import trace
from voxload.engine.losses import VoxelLoss
from voxload.engine.run.join import ROUNDS, AutotunedJoin, Join
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow, UNet3D

TOLERANCE = 1e-12
SPATIALS = [(2, 1, 1), (1, 3, 1), (2, 1, 2)]


class Excited(nn.Module):
    """Squeeze and excitation: a pooled volume scales the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(2, 4, 3, padding=1)
        self.squeeze = nn.AdaptiveAvgPool3d(1)
        self.gate = nn.Sequential(nn.Conv3d(4, 2, 1), nn.ReLU(), nn.Conv3d(2, 4, 1), nn.Sigmoid())
        self.scale = nn.Parameter(torch.randn(4, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return a volume."""
        y: Tensor = self.conv(x)
        mean = y.mean((2, 3, 4), keepdim=True)
        result: Tensor = y * self.gate(self.squeeze(y)) * self.scale + mean
        return result


class Dense(nn.Module):
    """Squeeze and excitation by dense layers, which see (B, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(2, 4, 3, padding=1)
        self.gate = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        """Return a volume."""
        y: Tensor = self.conv(x)
        weights = self.gate(y.mean((2, 3, 4)))
        result: Tensor = y * weights[:, :, None, None, None]
        return result


class ConvNext(nn.Module):
    """A block that normalises over channels, which it moves to the end for it."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv3d(2, 2, 5, padding=2, groups=2)
        self.norm = nn.LayerNorm(2)
        self.wide = nn.Linear(2, 6)
        self.narrow = nn.Linear(6, 2)
        self.gamma = nn.Parameter(torch.randn(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return a volume."""
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 4, 1))
        y = self.gamma * self.narrow(nn.functional.gelu(self.wide(y)))
        result: Tensor = x + y.permute(0, 4, 1, 2, 3)
        return result


class Skips(nn.Module):
    """Skips whose volumes are cut differently until they are joined, and channels that are picked."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv3d(2, 4, 3, stride=2, padding=1)
        self.resize = nn.Upsample(size=(9, 8, 7), mode="trilinear", align_corners=True)
        self.pad = nn.ReplicationPad3d((1, 0, 0, 1, 2, 1))
        self.crop = nn.Conv3d(2, 2, (4, 2, 2))
        self.norm = nn.GroupNorm(2, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Return a volume."""
        y = self.resize(self.down(x))
        z = self.crop(self.pad(x))
        low, high = torch.chunk(y, 2, 1)
        joined = self.norm(torch.cat((z, y), dim=1))
        result: Tensor = joined[:, 2:4].softmax(1) + low * high - z
        return result


class Pyramid(nn.Module):
    """Several global poolings joined, then dense layers: the head of a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(2, 3, 3, padding="same", padding_mode="reflect")
        self.norm = nn.BatchNorm3d(3)
        self.peak = nn.AdaptiveMaxPool3d((2, 1, 3))
        self.fc = nn.Linear(3 + 18, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Return features."""
        y = torch.relu(self.norm(self.conv(x)))
        scores: Tensor = self.fc(torch.cat((y.mean([-1, -2, -3]), self.peak(y).flatten(1)), 1))
        return scores


NETWORKS: list[type[nn.Module]] = [Excited, Dense, ConvNext, Skips, Pyramid]
CASES = [
    pytest.param(
        kind,
        spatial,
        id=f"{kind.__name__}-{spatial}",
        marks=() if turn % len(SPATIALS) == place else pytest.mark.long,
    )
    for turn, kind in enumerate(NETWORKS)
    for place, spatial in enumerate(SPATIALS)
]
"""Every network over every cut; the short run has each network, and each cut, at least once."""


@pytest.mark.few_cases(5)
@pytest.mark.parametrize(("kind", "spatial"), CASES)
def test_networks_equal_one_process(kind: type[nn.Module], spatial: tuple[int, int, int]) -> None:
    """Results, all gradients and running statistics are those of one process, layers on fewer ranks or not."""
    torch.manual_seed(1)
    x = torch.randn(2, 2, 9, 8, 7, dtype=torch.float64)
    for width in (0, 4):
        errors = worst_error(kind().double(), x, spatial, min_width=width)
        assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.long
@pytest.mark.parametrize("flatten", [nn.Flatten(), None], ids=["layer", "view"])
def test_a_head_by_columns(flatten: nn.Module | None) -> None:
    """A dense layer that takes its block's columns gives the same, and the volume is never gathered."""

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv3d(2, 3, 3, stride=2)
            self.flatten = flatten
            self.fc = nn.Linear(3 * 4 * 3 * 3, 5)
            self.last = nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.conv(x))
            flat = y.view(y.size(0), -1) if self.flatten is None else self.flatten(y)
            scores: Tensor = self.last(torch.tanh(self.fc(flat)))
            return scores

    torch.manual_seed(8)
    x = torch.randn(2, 2, 9, 8, 7, dtype=torch.float64)
    model = Head().double()
    for spatial in SPATIALS:
        errors = worst_error(model, x, spatial, columns=True, min_width=0)
        assert max(errors.values()) <= TOLERANCE, errors
    steps = compile_program(model, trace(model), (True, False, False), columns=True).steps
    assert not any(step.reassembles for step in steps)


@pytest.mark.parametrize("variant", ["kits19", pytest.param("lbann", marks=pytest.mark.long)])
@pytest.mark.parametrize("spatial", [(4, 1, 2), pytest.param((4, 1, 3), marks=pytest.mark.long)], ids=str)
@pytest.mark.parametrize("width", [0, pytest.param(4, marks=pytest.mark.long)])
def test_u_nets_on_uneven_volumes(variant: Any, spatial: tuple[int, int, int], width: int) -> None:
    """Decoders join encoders whose blocks are odd, on more ranks than the bottom has voxels."""
    torch.manual_seed(2)
    x = torch.randn(2, 1, 12, 8, 20, dtype=torch.float64)
    model = UNet3D(1, 3, variant=variant, widths=(2, 4, 6)).double()
    errors = worst_error(model, x, spatial, min_width=width)
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.long
@pytest.mark.parametrize("join", ["patch", pytest.param("add", marks=pytest.mark.long)])
def test_u_nets_whose_blocks_are_not_padded(join: str) -> None:
    """Convolutions that begin with their block and join halos afterwards give the same numbers."""
    torch.manual_seed(5)
    x = torch.randn(1, 1, 16, 24, 16, dtype=torch.float64)
    errors = worst_error(UNet3D(1, 3, widths=(2, 4, 6)).double(), x, (2, 3, 1), join=join)
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.long
def test_ranks_choose_by_measuring() -> None:
    """With join="auto" each rank tries every way, whatever the others do, and each pass is right."""
    torch.manual_seed(6)
    model = nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.ReLU(), nn.Conv3d(2, 2, 3, padding=1)).double()
    x = torch.randn(1, 1, 9, 8, 7, dtype=torch.float64)
    wanted = model(x)
    wanted.square().sum().backward()
    world = World.of(model, (9, 8, 7), (2, 2, 1), join="auto")
    for _ in range(ROUNDS * len(Join) + 2):

        def work(rank: int) -> float:
            world.models[rank].zero_grad()
            found = world.networks[rank](world.block(rank, x))
            found.square().sum().backward()
            return error(found.detach(), world.block(rank, wanted.detach()))

        assert max(world.loopback.run(work)) <= TOLERANCE
        for name, weight in model.named_parameters():
            total = sum(twin.get_parameter(name).grad for twin in world.models)  # type: ignore[misc] # all have one
            assert weight.grad is not None
            assert error(torch.as_tensor(total), weight.grad) <= TOLERANCE


def test_the_fastest_way_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured decides, forward and backward together, convolution by convolution."""
    clock = [0.0]
    monkeypatch.setattr("voxload.engine.run.join.time.perf_counter", lambda: clock[0])
    seconds: dict[str, dict[Join, float]] = {
        "thin": {Join.PAD: 1.0, Join.PATCH: 2.0, Join.ADD: 3.0},
        "wide": {Join.PAD: 3, Join.PATCH: 2, Join.ADD: 1},
    }
    chooser = AutotunedJoin()
    for key, by_way in seconds.items():
        for index in range(ROUNDS * len(Join)):
            way = chooser.choose(key)
            with chooser.timed(key, way, torch.device("cpu")):
                clock[0] += by_way[way] + (100 if index < len(Join) else 0)  # the first call of each way is slow
    assert [chooser.choose(key) for key in seconds for _ in range(3)] == [Join.PAD] * 3 + [Join.ADD] * 3
    assert not chooser.is_measuring("thin")


@pytest.mark.parametrize("join", ["pad", "patch", "add"])
def test_double_backward(join: str) -> None:
    """The gradient of a gradient, as penalties on gradients need it, crosses every kind of exchange."""
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1, padding_mode="circular"),
        nn.InstanceNorm3d(4, affine=True),
        nn.Tanh(),
        nn.AvgPool3d(3, 2, 1),
        nn.GroupNorm(2, 4),
        nn.ConvTranspose3d(4, 2, 3, stride=2, padding=1),
        nn.BatchNorm3d(2),
        nn.Tanh(),
    ).double()
    x = torch.randn(2, 1, 7, 6, 5, dtype=torch.float64)
    wanted = second_derivative(model, x, lambda network, volume: network(volume).pow(3).sum())
    world = World.of(model, (7, 6, 5), (3, 1, 1), min_width=0, join=join)
    # Every rank has the loss, so each derivative counts it once per rank: three times in the first, nine in the square.
    shares = 3 * 9

    def work(rank: int) -> Tensor:
        def loss(network: nn.Module, block: Tensor) -> Tensor:
            return all_sum(network(block).pow(3).sum(), world.exchange(rank))

        leaf = world.block(rank, x).clone().requires_grad_()
        (first,) = torch.autograd.grad(loss(world.networks[rank], leaf), leaf, create_graph=True)
        penalty = all_sum(first.square().sum(), world.exchange(rank))
        (second,) = torch.autograd.grad(penalty, leaf)
        return second / shares

    for rank, found in enumerate(world.loopback.run(work)):
        torch.testing.assert_close(found, world.block(rank, wanted), rtol=1e-11, atol=1e-11 * wanted.abs().max().item())


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.long)], ids=str)
def test_autocast_casts_before_anything_is_sent(dtype: torch.dtype) -> None:
    """Under autocast halos travel in the reduced type, and errors are those of that type in one process."""
    torch.manual_seed(4)
    model = UNet3D(1, 2, widths=(4, 6, 8))
    x, target = torch.randn(1, 1, 16, 16, 16), torch.randint(0, 2, (1, 16, 16, 16))
    exact = nn.functional.cross_entropy(model.double()(x.double()), target).item()
    model = model.float()
    with torch.autocast("cpu", dtype):
        plain = model(x)
    alone = abs(nn.functional.cross_entropy(plain.float(), target).item() - exact)
    world = World.of(model, (16, 16, 16), (2, 2, 1))
    types: set[torch.dtype] = set()

    def work(rank: int) -> float:
        exchange = world.exchange(rank)
        start = exchange.start

        def spy(axis: int, outgoing: Any, incoming: Any) -> Any:
            types.update(tensor.dtype for tensor in outgoing.values())
            return start(axis, outgoing, incoming)

        exchange.start = spy  # type: ignore[method-assign] # to look at what travels
        criterion = VoxelLoss(nn.CrossEntropyLoss(), world.loopback.grid.at(rank), exchange=exchange)
        with torch.autocast("cpu", dtype):
            found = world.networks[rank](world.block(rank, x))
        loss = criterion(found.float(), world.block(rank, target))
        loss.backward()
        return float(loss.detach())

    losses = world.loopback.run(work)
    assert types == {dtype}
    assert abs(losses[0] - exact) <= 2 * alone + 2e-3


@pytest.mark.long
def test_messages_and_bytes_are_those_of_the_plan() -> None:
    """What a rank receives in a forward pass is what explain says, message by message."""
    model = CosmoFlow(32, 1, 2, variant="lbann").double()
    x = torch.randn(1, 1, 32, 32, 32, dtype=torch.float64)
    world = World.of(model, (32, 32, 32), (2, 2, 1))
    counted: dict[int, tuple[int, int]] = {}

    def work(rank: int) -> None:
        exchange = world.exchange(rank)
        start, totals = exchange.start, [0, 0]

        def count(axis: int, outgoing: Any, incoming: Any) -> Any:
            totals[0] += len(incoming)
            totals[1] += sum(tensor.nbytes for tensor in incoming.values())
            return start(axis, outgoing, incoming)

        exchange.start = count  # type: ignore[method-assign] # to count what travels
        with torch.no_grad():
            world.networks[rank](world.block(rank, x))
        counted[rank] = totals[0], totals[1]

    world.loopback.run(work)
    assert sum(messages for messages, _ in counted.values()) > 30
    for rank, (messages, received) in counted.items():
        grid = ProcessGrid((2, 2, 1), 4, rank)
        rows = [
            line.rsplit(maxsplit=4) for line in explain(model, (32, 32, 32), grid, dtype=torch.float64).splitlines()
        ]
        assert messages == sum(int(row[-4]) for row in rows[1:])
        assert received / 1024 == pytest.approx(sum(float(row[-3]) for row in rows[1:]), abs=0.05 * len(rows))
