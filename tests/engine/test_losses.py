"""Losses of cut volumes against torch's own of whole ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from voxload.engine import Loopback
from voxload.engine.losses import DiceLoss, VoxelLoss
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

SPATIAL = (3, 1, 2)
SHAPE = (7, 3, 5)
CLASSES = 3

BY_ELEMENT: list[nn.Module] = [
    nn.MSELoss(),
    nn.L1Loss(),
    nn.SmoothL1Loss(),
    nn.HuberLoss(),
    nn.MSELoss(reduction="sum"),
]
WEIGHT = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
BY_CLASS: list[nn.Module] = [
    nn.CrossEntropyLoss(),
    nn.CrossEntropyLoss(weight=WEIGHT),
    nn.CrossEntropyLoss(ignore_index=1),
    nn.CrossEntropyLoss(weight=WEIGHT, ignore_index=0, label_smoothing=0.1),
    nn.NLLLoss(weight=WEIGHT),
]


def _dice(prediction: Tensor, target: Tensor) -> Tensor:
    """Return one minus the mean Dice coefficient, class by class, as the textbook has it."""
    shares = prediction.softmax(1)
    scores = []
    for sample in range(len(prediction)):
        for label in range(prediction.shape[1]):
            truth = (target[sample] == label).to(shares.dtype)
            share = shares[sample, label]
            scores.append((2 * (share * truth).sum() + 1e-6) / (share.sum() + truth.sum() + 1e-6))
    return 1 - torch.stack(scores).mean()


def _check(make: Callable[..., nn.Module], whole: Callable[[Tensor, Tensor], Tensor], target: Tensor) -> None:
    """Compare loss and gradient of blocks on virtual ranks with those of whole volumes."""
    torch.manual_seed(3)
    prediction = torch.randn(2, CLASSES, *SHAPE, dtype=torch.float64).log_softmax(1)
    leaf = prediction.clone().requires_grad_()
    wanted = whole(leaf, target)
    wanted.backward()  # type: ignore[no-untyped-call] # torch leaves it untyped
    ranks = 6
    grid = ProcessGrid(SPATIAL, ranks)
    world = Loopback(grid)

    def work(rank: int) -> tuple[float, Tensor]:
        slices: Any = (..., *grid.at(rank).block(SHAPE).slices)
        block = prediction[slices].clone().requires_grad_()
        loss = make(grid.at(rank), exchange=world.rank(rank))(block, target[slices])
        loss.backward()
        assert block.grad is not None
        return loss.item(), block.grad

    assert leaf.grad is not None
    for rank, (loss, grad) in enumerate(world.run(work)):
        assert loss == pytest.approx(wanted.item(), rel=1e-13)
        own: Any = (..., *grid.at(rank).block(SHAPE).slices)
        # All ranks have the loss, so the sum that autograd gives counts it once per rank; averaging mends that.
        torch.testing.assert_close(grad / ranks, leaf.grad[own], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("loss", BY_ELEMENT, ids=str)
def test_losses_by_number(loss: nn.Module) -> None:
    """Means and sums over uneven blocks are those over the volumes."""
    target = torch.randn(2, CLASSES, *SHAPE, dtype=torch.float64)
    _check(lambda grid, **more: VoxelLoss(loss, grid, **more), loss, target)


@pytest.mark.parametrize("loss", BY_CLASS, ids=lambda loss: f"{loss}{loss.weight is not None}{loss.ignore_index}")
def test_losses_by_class(loss: nn.Module) -> None:
    """Weights of classes and ignored voxels, which are spread unevenly over the blocks, count as in one process."""
    target = torch.randint(0, CLASSES, (2, *SHAPE))
    target[:, :2] = 1
    _check(lambda grid, **more: VoxelLoss(loss, grid, **more), loss, target)


def test_shares_of_classes() -> None:
    """Targets that are shares of classes divide by voxels."""
    target = torch.rand(2, CLASSES, *SHAPE, dtype=torch.float64).softmax(1)
    loss = nn.CrossEntropyLoss()
    _check(lambda grid, **more: VoxelLoss(loss, grid, **more), loss, target)


def test_dice() -> None:
    """The Dice loss of blocks is that of the volumes; leaving the background out leaves class 0 out."""
    target = torch.randint(0, CLASSES, (2, *SHAPE))
    _check(DiceLoss, _dice, target)
    perfect = functional.one_hot(target, CLASSES).movedim(-1, 1).double() * 60
    assert DiceLoss(ProcessGrid(), background=False)(perfect, target).item() == pytest.approx(0, abs=1e-9)


def test_other_losses_are_refused() -> None:
    """A loss whose mean is none over voxels is refused with a remedy."""
    refused: list[Any] = [nn.CTCLoss(), nn.MSELoss(reduction="none")]
    for loss in refused:
        with pytest.raises(UsageError, match="all_sum"):
            VoxelLoss(loss, ProcessGrid())


def test_more_voxels_than_float32_can_count() -> None:
    """A mean over an odd number of them above 2^24 is exact in float64."""
    extent = 257
    ones = torch.ones((), dtype=torch.float64).expand(1, 1, extent, extent, extent)
    assert extent**3 > 2**24
    loss = VoxelLoss(nn.L1Loss(), ProcessGrid())
    assert loss(ones, torch.zeros_like(ones)).item() == 1.0
