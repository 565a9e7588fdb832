"""One rank of two trainers of two ranks each: ``rank_tournament.py RANK RANKS FOLDER``.

Weights are whole, or cut by FSDP2. What was found is written to ``FOLDER/report-RANK.json``.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tests.support import processes
from voxload.errors import UsageError
from voxload.parallel.tournament.tournament import TRUNCATION, Rules, Tournament

dist: Any = torch.distributed
SIZE = 2
GOOD = {1: 0, 2: 1}
"""Whose model is the better one, by round."""


def network(trainer: int, *, is_cut: bool) -> nn.Module:
    """Return a trainer's network, whose numbers all are 1 more than its own."""
    found = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3))
    with torch.no_grad():
        for each in (*found.parameters(), *found.buffers()):
            each.fill_(trainer + 1)
    if is_cut:
        fully_shard(found)  # the same object
    return found


def own(model: nn.Module) -> list[Tensor]:
    """Return this rank's tensors: whole ones, and parts."""
    tensors = (*model.parameters(), *model.buffers())
    return [(each.to_local() if isinstance(each, DTensor) else each).detach() for each in tensors]


def values(model: nn.Module) -> list[float]:
    """Return the numbers that a model has."""
    found = torch.cat([each.flatten().double() for each in own(model) if each.numel()])
    return sorted(set(found.tolist()))


def played(trainer: int, store: Any, *, is_cut: bool, rules: Rules) -> dict[str, Any]:
    """Play two rounds of which one trainer has the better model in each."""
    model = network(trainer, is_cut=is_cut)
    tournament = Tournament(rules, trainers=2, trainer=trainer, store=store)
    seen = []
    for number, good in GOOD.items():

        def judge(good: int = good) -> float:
            return abs(max(values(model)) - (good + 1))

        verdict = tournament.play(number, own(model), judge)
        seen.append([verdict.is_adopted, verdict.is_forfeit, verdict.partner, values(model)])
        with torch.no_grad():
            for each in own(model):
                each.fill_(trainer + 1)
    return {"rounds": seen}


def alone(trainer: int, store: Any) -> dict[str, Any]:
    """Play rounds that the other trainer does not come to, and one of another network."""
    found: dict[str, Any] = {}
    model = network(trainer, is_cut=False)
    hasty = Tournament(Rules(patience=0.2), trainers=2, trainer=trainer, store=dist.PrefixStore(f"{trainer}", store))
    verdict = hasty.play(1, own(model), lambda: 1.0)
    found["forfeit"] = [verdict.is_adopted, verdict.is_forfeit, values(model)]
    other = nn.Linear(3, 3 + trainer)
    try:
        Tournament(Rules(), trainers=2, trainer=trainer, store=store).play(9, own(other), lambda: 1.0)
    except UsageError as error:
        found["unlike"] = str(error)
    return found


def main() -> None:
    """Run all cases."""
    rank, _, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    limit = timedelta(seconds=processes.LIMIT)
    base = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=limit)
    trainer = rank // SIZE
    dist.init_process_group(
        "gloo", store=dist.PrefixStore(f"trainer {trainer}", base), rank=rank % SIZE, world_size=SIZE, timeout=limit
    )
    found = {
        name: played(trainer, dist.PrefixStore(name, base), is_cut=is_cut, rules=rules)
        for name, is_cut, rules in (
            ("whole", False, Rules()),
            ("cut", True, Rules()),
            ("truncation", False, Rules(selection=TRUNCATION, replaced=0.5)),
        )
    }
    found["alone"] = alone(trainer, dist.PrefixStore("alone", base))
    (folder / f"report-{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
