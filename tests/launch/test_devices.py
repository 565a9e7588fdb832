"""What a rank computes on: the GPU of its number on the node, and no GPU of another's."""

from __future__ import annotations

import pytest
import torch

from voxload.errors import UsageError
from voxload.launch.devices import DEVICES, check_distinct, check_own, check_there, place_of, rank_device
from voxload.training.normalisation import TargetScale
from voxload.training.plan import TrainingPlan


@pytest.mark.parametrize(
    ("environ", "count", "place"),
    [
        ({}, 1, 0),
        ({}, 4, 0),
        ({"LOCAL_RANK": "3"}, 4, 3),
        ({"LOCAL_RANK": "1", "SLURM_LOCALID": "0"}, 2, 1),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "2"}, 4, 2),
        ({"MPI_LOCALRANKID": "1"}, 2, 1),
        ({"SLURM_LOCALID": "3"}, 1, 0),  # a launcher that shows each rank its own
    ],
)
def test_a_rank_takes_the_gpu_of_its_number(environ: dict[str, str], count: int, place: int) -> None:
    """By the variables of every launcher; torchrun inside another's step is torchrun."""
    assert place_of(environ, count) == place


def test_more_ranks_than_gpus_are_refused() -> None:
    """So is a number that is none."""
    with pytest.raises(UsageError, match="found 2 GPUs for rank 2 of this node, expected one for each rank"):
        place_of({"LOCAL_RANK": "2"}, 2)
    with pytest.raises(UsageError, match="'-1', expected a whole number"):
        place_of({"LOCAL_RANK": "-1"}, 2)


def test_two_ranks_on_one_gpu_are_refused() -> None:
    """Told on every rank, by the names of the ranks; GPUs of two nodes differ whatever they are called."""
    check_distinct([("a", "GPU-1"), ("a", "GPU-2"), ("b", "GPU-1")])
    check_distinct([])
    with pytest.raises(UsageError, match="one GPU of a for the ranks 0 and 2"):
        check_distinct([("a", "GPU-1"), ("b", "GPU-1"), ("a", "GPU-1")])


def test_the_host_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where there is no GPU, the error says what to do; other devices are named."""
    assert rank_device("cpu") == torch.device("cpu")
    check_own(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"--device cuda: found no GPU that torch can use.*use --device cpu"):
        rank_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_there("cuda", ranks=2)
    with pytest.raises(UsageError, match="--device cuda: found 2 GPUs, expected one for each of 4 ranks; start fewer"):
        check_there("cuda", ranks=4)
    for name in ("mps", "", "cuda:1"):
        with pytest.raises(UsageError, match=f"--device: found '{name}', expected {' or '.join(DEVICES)}"):
            rank_device(name)
        with pytest.raises(UsageError, match="--device"):
            TrainingPlan("catalog", "output", device=name)


def test_targets_are_scaled_where_they_are() -> None:
    """Statistics come from the host, and targets may be on any device."""
    scale = TargetScale.of(torch.tensor([[0.0, 1.0], [2.0, 5.0]], dtype=torch.float64))
    there = torch.empty(3, 2, dtype=torch.float64, device="meta")
    assert scale.scaled(there).device.type == "meta"
    assert scale.original(there).device.type == "meta"
