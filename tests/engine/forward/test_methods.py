"""Methods split in place: what a loaded autoencoder's encode and decode give, in one process and on blocks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.splitting.compare import error
from voxload.engine import Loopback, shard_methods, unshard
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

pytestmark = pytest.mark.filterwarnings("default:.*whole on every rank:RuntimeWarning")

GRIDS = [(1, 2, 2), (2, 1, 1), (2, 2, 1)]
SHAPE = (5, 8, 7)


class Gaussian:
    """An object of no library's tree, with tensors and other things on it."""

    def __init__(self, parameters: Tensor) -> None:
        self.mean, self.spread = parameters.chunk(2, 1)
        self.name = "normal"

    def sample(self) -> Tensor:
        """Draw."""
        return self.mean + torch.randn_like(self.mean) * self.spread.exp()


@dataclass
class Encoded:
    """What encode returns."""

    dist: Gaussian
    total: Tensor


class Autoencoder(nn.Module):
    """Encodes whole videos, and decodes them frame by frame with what it keeps of the frame before."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Conv3d(2, 8, 3, padding=1), nn.Conv3d(4, 2, (2, 3, 3), padding=(0, 1, 1))
        self.kept: Tensor | None = None

    def encode(self, x: Tensor, scale: float = 1.0) -> Encoded:
        """Return means and spreads, and a sum of all voxels."""
        y = functional.silu(self.into(x)) * scale
        return Encoded(Gaussian(y), y.sum())

    def decode(self, z: Tensor, *, tail: bool = False) -> tuple[Tensor, ...]:
        """Return a video, and the latent numbers if it is asked for."""
        self.kept = None
        frames = [self.step(z[:, :, place : place + 1]) for place in range(z.shape[2])]
        video = torch.cat(frames, 2)
        return (video, z) if tail else (video,)

    def step(self, frame: Tensor) -> Tensor:
        """Return one frame."""
        before = torch.zeros_like(frame) if self.kept is None else self.kept
        self.kept = frame
        return functional.interpolate(self.out(torch.cat([before, frame], 2)), scale_factor=(1, 2, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Return what is left of a video."""
        return self.decode(self.encode(x).dist.mean)[0]


def _on_ranks(
    spatial: tuple[int, int, int], work: Callable[[Autoencoder, ProcessGrid], Any], **options: Any
) -> tuple[Autoencoder, list[tuple[Any, Autoencoder]]]:
    """Return a model, and for each virtual rank what `work` makes of a split copy, and that copy."""
    torch.manual_seed(0)
    model = Autoencoder().double()
    world = Loopback(ProcessGrid(spatial, spatial[0] * spatial[1] * spatial[2]))
    twins = [copy.deepcopy(model) for _ in range(world.grid.world_size)]

    def live(rank: int) -> Any:
        grid = world.grid.at(rank)
        shard_methods(twins[rank], grid, ("encode", "decode"), exchange=world.rank(rank), **options)
        return work(twins[rank], grid)

    return model, list(zip(world.run(live), twins, strict=True))


@pytest.mark.parametrize("spatial", GRIDS)
def test_whole_volumes_go_in_and_come_out(spatial: tuple[int, int, int]) -> None:
    """Values and the gradients of weights are those of one process, on every rank; objects keep what else they hold."""
    x = torch.randn(2, 2, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def work(model: Autoencoder, _: Any = None) -> tuple[Encoded, Tensor, Tensor]:
        encoded = model.encode(x, scale=0.5)
        video, z = model.decode(encoded.dist.mean, tail=True)
        (video.square().mean() + encoded.total + encoded.dist.spread.mean()).backward()  # type: ignore[no-untyped-call] # torch's
        return encoded, video, z

    model, found = _on_ranks(spatial, work)
    wanted = work(model)
    for (encoded, video, z), twin in found:
        assert type(twin) is Autoencoder
        assert encoded.dist.name == "normal"
        assert type(encoded.dist.mean) is Tensor
        for one, other in zip(
            (encoded.dist.mean, encoded.dist.spread, encoded.total, video, z),
            (wanted[0].dist.mean, wanted[0].dist.spread, wanted[0].total, wanted[1], wanted[2]),
            strict=True,
        ):
            assert error(one.detach(), other.detach()) <= 1e-12
    for name, weight in model.named_parameters():
        means = torch.stack([twin.get_parameter(name).grad for _, twin in found]).mean(0)  # type: ignore[misc] # all have one
        assert weight.grad is not None
        assert error(means, weight.grad) <= 1e-12


def test_blocks_go_in_and_come_out() -> None:
    """Where blocks are asked for, each rank gives and gets its own."""
    z = torch.randn(1, 4, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def work(model: Autoencoder, grid: ProcessGrid) -> Tensor:
        return model.decode(z[(slice(None), slice(None), *grid.block(SHAPE).slices)])[0].detach()

    model, found = _on_ranks((1, 2, 2), work, whole=False)
    wanted = model.decode(z)[0].detach()
    for rank, (video, _) in enumerate(found):
        own = ProcessGrid((1, 2, 2), 4, rank).block(tuple(wanted.shape[2:])).slices
        assert error(video, wanted[(slice(None), slice(None), *own)]) <= 1e-12


def test_a_model_is_put_back() -> None:
    """Its attributes and parameters are what they were, and no layer was added meanwhile."""
    x = torch.randn(1, 2, *SHAPE, dtype=torch.float64)

    def work(model: Autoencoder, _: ProcessGrid) -> tuple[set[str], list[str], Tensor]:
        names = {name for name, _ in model.named_modules()}
        keys = list(model.state_dict())
        through_forward = model(x).detach()  # which calls both methods
        unshard(model)
        assert error(model(x).detach(), through_forward) <= 1e-12
        with pytest.raises(UsageError, match="unshard: found Autoencoder"):
            unshard(model)
        return names, keys, through_forward

    model, found = _on_ranks((1, 2, 1), work)
    for (names, keys, result), twin in found:
        assert vars(twin).keys() == vars(model).keys()
        assert names == {name for name, _ in model.named_modules()}
        assert keys == list(model.state_dict())
        assert error(result, model(x).detach()) <= 1e-12


def test_what_cannot_be_split_is_told() -> None:
    """Names that no method has, models that are split, copies of them, and arguments without a volume."""
    world = Loopback(ProcessGrid())
    model, exchange = Autoencoder(), world.rank(0)
    with pytest.raises(UsageError, match="shard_methods of Autoencoder: found 'decoder'"):
        shard_methods(model, world.grid, ["decoder"], exchange=exchange)
    with pytest.raises(UsageError, match=r"expected a list of names, such as \['encode'\]"):
        shard_methods(model, world.grid, "encode", exchange=exchange)
    assert "encode" not in vars(model)
    shard_methods(model, world.grid, ["encode"], exchange=exchange)
    with pytest.raises(UsageError, match=r"unshard\(model\) before"):
        shard_methods(model, world.grid, ["decode"], exchange=exchange)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(UsageError, match="copy of a model whose method 'encode' is split"):
            copied(model)
    with pytest.raises(UsageError, match=r"a first tensor of shape \(3,\)"):
        model.encode(torch.ones(3))
    unshard(model)
    copy.deepcopy(model)


def test_one_rank_has_nothing_to_split() -> None:
    """Methods stay the class's own, and the model can be put back all the same."""
    model = Autoencoder()
    shard_methods(model, ProcessGrid(), ["encode"])
    assert "encode" not in vars(model)
    unshard(model)
