"""One rank of the tests of Lion on a grid: ``rank_lion.py RANK RANKS FOLDER``.

Each case is compared with all groups in one process. What was found is written to ``FOLDER/report-RANK.json``.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.engine.rank_start import meet, refused
from tests.parallel.lion.reference import Reference
from voxload.engine import shard
from voxload.grid import ProcessGrid
from voxload.parallel import Lion
from voxload.parallel.lion.buckets import turn

SHAPES = [(3, 5, 7), (1,), (2, 33), (64, 64), (5,), (9,)]
SPARSE, NEVER = 4, 5
"""Numbers of a weight with a gradient on some groups, in some steps, and of one that never has any."""
STEPS = 4
KINDS: list[dict[str, Any]] = [
    {"combine": "majority"},
    *({"combine": "p-bit", "bits": bits} for bits in (1, 2, 4, 8)),
    *({"combine": "mean", "bits": bits} for bits in (1, 8)),
]
OPTIONS: dict[str, Any] = {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1}


def weights(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return the same weights every time."""
    drawn = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=drawn).to(dtype) for shape in SHAPES]


def gradients(step: int, groups: int, dtype: torch.dtype, *, exact: bool = True) -> list[list[Tensor | None]]:
    """Return each group's gradients: eighths, of which sums and means over ranks are exact; many are zero. Or any."""
    found: list[list[Tensor | None]] = []
    for group in range(groups):
        drawn = torch.Generator().manual_seed(100 * step + group)
        own: list[Tensor | None] = [
            (torch.randint(-12, 13, shape, generator=drawn) / 8 * (torch.rand(shape, generator=drawn) > 0.3)).to(dtype)
            if exact
            else torch.randn(shape, generator=drawn).to(dtype)
            for shape in SHAPES
        ]
        if (step + group) % 3:
            own[SPARSE] = None
        own[NEVER] = None
        found.append(own)
    return found


def give(parameters: list[nn.Parameter], own: list[Tensor | None], grid: ProcessGrid) -> None:
    """Give this rank gradients whose mean over its group is the group's."""
    place = grid.rank % grid.group_size
    drawn = torch.Generator().manual_seed(7)
    for each, gradient in zip(parameters, own, strict=True):
        each.grad = None
        if gradient is not None:
            noise = torch.randint(-8, 9, (grid.group_size, *gradient.shape), generator=drawn) / 8.0
            each.grad = gradient + (noise[place] - noise.roll(1, 0)[place]).to(gradient.dtype)


def synthetic(grid: ProcessGrid, kind: dict[str, Any], dtype: torch.dtype, *, momentum: int = 0) -> dict[str, Any]:
    """Take steps by gradients of which all is known; return where weights are others than in one process."""
    parameters = [nn.Parameter(each) for each in weights(dtype)]
    optimiser = Lion(parameters, grid, **kind, **OPTIONS, momentum=momentum)
    reference = Reference(weights(dtype), grid.groups, **kind, **OPTIONS)
    wrong, drift = [], 0.0
    for step in range(STEPS):
        known = gradients(step, grid.groups, dtype, exact=not momentum)
        give(parameters, known[grid.group], grid)
        optimiser.step()
        reference.step(known)
        for part in turn([each.numel() for each in parameters], momentum, step) if momentum else ():
            reference.average(*part)
        wrong += [
            (step, number)
            for number, (each, other) in enumerate(zip(parameters, reference.weights, strict=True))
            if not (torch.equal(each, other) if not momentum else torch.allclose(each, other, atol=1e-6))
        ]
        for each, other in zip(parameters, reference.momenta[grid.group], strict=True):
            if each in optimiser.state and each is not parameters[NEVER]:
                drift = max(drift, float((optimiser.state[each]["exp_avg"] - other).abs().max()))
    return {"wrong": wrong, "drift": drift}


def traffic(grid: ProcessGrid, **kind: Any) -> float:
    """Return the bytes between groups of a step, over those of a ring that sums float32."""
    weight = nn.Parameter(torch.zeros(500_000))
    optimiser = Lion([weight], grid, **kind)
    for _ in range(2):
        before = optimiser.bytes_across
        weight.grad = torch.randn(500_000)
        optimiser.step()
    ring = 2 * (grid.groups - 1) * weight.nbytes / (grid.groups * grid.group_size)
    return (optimiser.bytes_across - before) / ring


def network() -> nn.Sequential:
    """Return the same network every time, in float64."""
    torch.manual_seed(3)
    body = [nn.Conv3d(1, 4, 3, padding=1), nn.SiLU(), nn.MaxPool3d(2), nn.Conv3d(4, 6, 3, padding=1), nn.SiLU()]
    return nn.Sequential(*body, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(6, 2)).double()


def batch(step: int, group: int) -> tuple[Tensor, Tensor]:
    """Return a group's samples in a step."""
    drawn = torch.Generator().manual_seed(1000 * step + group)
    x = torch.randn(2, 1, 8, 8, 8, dtype=torch.float64, generator=drawn)
    return x, torch.randn(2, 2, dtype=torch.float64, generator=drawn)


def trained(grid: ProcessGrid, *, wrapped: bool, passes: int = 1, clip: float = 0.0) -> float:
    """Train a network that is split over groups; return how far its weights are from those of one process.

    Under DistributedDataParallel, or plain; by gradients of several passes that are added up; clipped or not.
    """
    model: Any = shard(network(), grid, shape=(8, 8, 8), min_width=0)
    alone, known = network(), Reference(list(network().parameters()), grid.groups, combine="majority", **OPTIONS)
    parameters = list(model.parameters())
    optimiser = Lion(parameters, grid, **OPTIONS)
    run = DistributedDataParallel(model) if wrapped else model
    if wrapped:
        optimiser.attach(run)
    own: Any = (..., *grid.block((8, 8, 8)).slices)
    for step in range(3):
        optimiser.zero_grad()
        for number in range(passes):
            x, y = batch(passes * step + number, grid.group)
            if wrapped and number < passes - 1:
                with run.no_sync():
                    nn.functional.mse_loss(run(x[own]), y).backward()  # type: ignore[no-untyped-call]
            else:
                nn.functional.mse_loss(run(x[own]), y).backward()  # type: ignore[no-untyped-call]
        optimiser.reduce_gradients()
        if clip:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimiser.step()
        found: list[list[Tensor | None]] = []
        for group in range(grid.groups):
            alone.load_state_dict(dict(zip(alone.state_dict(), known.weights, strict=True)))
            alone.zero_grad()
            for number in range(passes):
                x, y = batch(passes * step + number, group)
                nn.functional.mse_loss(alone(x), y).backward()  # type: ignore[no-untyped-call]
            if clip:
                nn.utils.clip_grad_norm_(alone.parameters(), clip)
            found.append([None if each.grad is None else each.grad.clone() for each in alone.parameters()])
        known.step(found)
    return max(float((each - other).abs().max()) for each, other in zip(parameters, known.weights, strict=True))


def scaled(grid: ProcessGrid) -> dict[str, Any]:
    """Take steps under a GradScaler of which one overflows on one rank; return what ranks then have."""
    weight = nn.Parameter(torch.ones(40))
    optimiser = Lion([weight], grid, lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    seen = []
    for is_broken in (False, True, False):
        optimiser.zero_grad()
        scaler.scale((weight * torch.arange(1.0, 41.0)).sum()).backward()  # type: ignore[no-untyped-call]
        if is_broken and grid.rank == grid.world_size - 1:
            weight.grad[3] = torch.inf  # type: ignore[index]
        optimiser.reduce_gradients()
        scaler.unscale_(optimiser)
        scaler.step(optimiser)
        scaler.update()
        seen.append(float(weight[0]))
    optimiser.zero_grad()
    scaler.scale(weight.sum()).backward()  # type: ignore[no-untyped-call]
    said = refused(lambda: scaler.step(optimiser)) if grid.group_size > 1 else ""
    return {"seen": seen, "refused": said}


def poisoned(grid: ProcessGrid, **kind: Any) -> list[float]:
    """Take a step in which the last rank's gradient is no number in one place; return a weight's values."""
    weight = nn.Parameter(torch.ones(40))
    optimiser = Lion([weight], grid, lr=0.1, **kind)
    weight.grad = torch.ones(40)
    if grid.rank == grid.world_size - 1:
        weight.grad[3] = torch.nan
    optimiser.step()
    return weight.isnan().tolist()


def resumed(grid: ProcessGrid, folder: Path) -> dict[str, bool]:
    """Stop behind half of the steps; tell whether what goes on is what was not stopped, on these groups and others."""

    def run(parameters: list[nn.Parameter], optimiser: Lion, over: ProcessGrid, steps: range) -> None:
        for step in steps:
            give(parameters, gradients(step, over.groups, torch.float32)[over.group], over)
            optimiser.step()

    made = []
    for _ in range(2):
        parameters = [nn.Parameter(each) for each in weights()]
        made.append((parameters, Lion(parameters, grid, **OPTIONS, momentum=3)))
        run(*made[-1], grid, range(STEPS // 2))
    state = made[1][1].gathered_state_dict()
    path = folder / f"state-{grid.groups}.pt"
    if grid.rank == 0:
        torch.save(state, path)
    dist.barrier()
    loaded = torch.load(path, weights_only=True)
    again = [nn.Parameter(each.detach().clone()) for each in made[1][0]]
    optimiser = Lion(again, grid, lr=9.0, momentum=3)
    optimiser.load_gathered_state_dict(loaded)
    run(*made[0], grid, range(STEPS // 2, STEPS))
    run(again, optimiser, grid, range(STEPS // 2, STEPS))
    same = all(torch.equal(*pair) for pair in zip(made[0][0], again, strict=True))
    other = ProcessGrid((grid.world_size, 1, 1), grid.world_size, grid.rank)
    fewer = Lion(again, other)
    fewer.load_gathered_state_dict(loaded)
    first = loaded["state"][0]["exp_avg"]
    is_mean = torch.equal(fewer.state[again[0]]["exp_avg"], first.mean(0) if grid.groups > 1 else first[0])
    return {"same": same, "mean": is_mean, "empty": (state is None) == (grid.rank != 0)}


def unlike(grid: ProcessGrid) -> list[str]:
    """Return what is said of ranks that do not begin alike."""

    def stepped(weight: Tensor, **options: Any) -> Any:
        parameter = nn.Parameter(weight)
        optimiser = Lion([parameter], grid, **options)
        parameter.grad = torch.ones_like(parameter)
        return optimiser.step

    is_last = grid.rank == grid.world_size - 1
    return [
        refused(stepped(torch.full((4,), float(is_last)))),
        refused(stepped(torch.ones(4 + is_last))),
        refused(stepped(torch.ones(4), lr=0.1 + 0.1 * is_last)),
    ]


def spatials(ranks: int) -> list[tuple[int, int, int]]:
    """Return the grids of so many ranks: no blocks, blocks, and one group alone."""
    found = [(1, 1, 1)]
    if ranks % 2 == 0 and ranks > 2:
        found.append((2, 1, 1))
    if ranks == 8:
        found.append((1, 2, 2))
    return [*found, (ranks, 1, 1)]


def report(rank: int, ranks: int, folder: Path) -> dict[str, Any]:
    """Return all that was found."""
    found: dict[str, Any] = {}
    for spatial in spatials(ranks):
        grid = ProcessGrid(spatial, ranks, rank)
        cases = found[str(spatial)] = dict[str, Any]()
        cases["groups"] = grid.groups
        for kind in KINDS:
            for dtype in (torch.float32, torch.float64):
                cases[f"{kind} {dtype}"] = synthetic(grid, copy.deepcopy(kind), dtype)
        cases["momentum"] = synthetic(grid, {"combine": "majority"}, torch.float32, momentum=2)
        cases["resumed"] = resumed(grid, folder)
        if grid.groups > 1:
            cases["traffic"] = {str(bits): traffic(grid, combine="p-bit", bits=bits) for bits in (1, 2, 4, 8)}
        cases["scaled"] = scaled(grid)
        cases["poisoned"] = [poisoned(grid, **kind) for kind in KINDS]
        cases["unlike"] = unlike(grid)
    if ranks == 4:
        grid = ProcessGrid((2, 1, 1), ranks, rank)
        for name, words in TRAINED.items():
            found[name] = trained(grid, **words)
    return found


TRAINED: dict[str, dict[str, Any]] = {
    "plain": {"wrapped": False},
    "plain, accumulated, clipped": {"wrapped": False, "passes": 2, "clip": 0.01},
    "wrapped": {"wrapped": True},
    "wrapped, accumulated, clipped": {"wrapped": True, "passes": 2, "clip": 0.01},
}


def main() -> None:
    """Run all cases."""
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    meet(rank, ranks, folder)
    found = report(rank, ranks, folder)
    (folder / f"report-{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
