"""The equality table: CosmoFlow split over real ranks, under stock DDP, against one process, in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from voxload.models import CosmoFlow

SIZE = 32
STEPS = 5
RATE = 0.01
TOLERANCE = 1e-12
CONFIGURATIONS: list[tuple[int, tuple[int, int, int]]] = [
    (8, (8, 1, 1)),
    (8, (2, 2, 2)),
    (4, (1, 2, 2)),
    (4, (2, 1, 1)),
    (3, (1, 3, 1)),
]
"""Ranks and blocks along (d, h, w); 4 ranks with 2 blocks are two sample groups, 32 over 3 is uneven."""
QUANTITIES = ("forward", "loss", "gradients", "weights")


def _reference() -> dict[str, Any]:
    """Train plain CosmoFlow in this process; return the start, every step and the end."""
    torch.manual_seed(20)
    model = CosmoFlow(SIZE, dropout=0.0).double()
    x = torch.rand(2, 4, SIZE, SIZE, SIZE, dtype=torch.float64).mul(8).log1p()
    target = torch.rand(2, 4, dtype=torch.float64).mul(2).sub(1)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    steps = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        found = model(x)
        loss = (found - target).square().mean()
        loss.backward()
        gradients = {name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None}
        steps.append({"forward": found.detach(), "loss": loss.detach(), "gradients": gradients})
        optimizer.step()
    return {
        "size": SIZE,
        "lr": RATE,
        "configurations": CONFIGURATIONS,
        "x": x,
        "target": target,
        "start": start,
        "steps": steps,
        "end": dict(model.state_dict()),
    }


@pytest.mark.long
def test_training_equals_one_process(
    launch: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Forward, loss, every gradient and the weights after five steps are equal on any number of ranks and any split."""
    reference = _reference()
    moved = max((reference["end"][name] - reference["start"][name]).abs().max().item() for name in reference["end"])
    assert moved > 1e-4  # the steps change the weights, so equal weights mean something
    torch.save(reference, tmp_path / "reference.pt")
    outcomes = launch("rank_equality.py", max(world for world, _ in CONFIGURATIONS))
    assert [outcome.status for outcome in outcomes] == [0] * len(outcomes), outcomes
    lines = ["", f"CosmoFlow({SIZE}), float64, {STEPS} steps of SGD under DDP: worst relative error over all ranks"]
    lines.append(f"{'ranks':>5}  {'split':<9}  {'groups':>6}  " + "  ".join(f"{name:>9}" for name in QUANTITIES))
    worst = 0.0
    for world, spatial in sorted(CONFIGURATIONS):
        rows = [outcome.report[f"{world} {spatial}"] for outcome in outcomes[:world]]
        errors = [max(row[name] for row in rows) for name in QUANTITIES]
        worst = max(worst, *errors)
        split = "x".join(str(count) for count in spatial)
        groups = world // (spatial[0] * spatial[1] * spatial[2])
        lines.append(f"{world:>5}  {split:<9}  {groups:>6}  " + "  ".join(f"{value:9.1e}" for value in errors))
    with capsys.disabled():
        print("\n".join(lines))  # noqa: T201 - the table is what the test is for
    assert worst <= TOLERANCE
