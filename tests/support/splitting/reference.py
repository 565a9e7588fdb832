"""reference: training in one process, which every combination is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from tests.support.splitting.combination import build, criterion, data_of, parts_of

STEPS = 5
RATE = 0.01
MOMENTUM = 0.9

State = dict[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What training in one process gave."""

    begin: State
    """Parameters and buffers before the first step: drawn once, since torch draws others with other instructions."""
    losses: list[float]
    """Of each step."""
    gradients: list[State]
    """Of each step, by parameter."""
    end: State
    """Parameters and buffers after the last step."""


@cache
def reference(network: str, mode: str) -> Reference:
    """Train plain torch for `STEPS` steps and return what happened; accumulation is the only mode that matters."""
    model = build(network)
    begin = _copied(model)
    x, target = data_of(network, mode)
    measure = criterion(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    losses, gradients = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        parts = parts_of(len(x), mode)
        for part in parts:
            loss = measure(model(x[part]), target[part]) / len(parts)
            loss.backward()
            total += float(loss.detach())
        losses.append(total)
        gradients.append({name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None})
        optimizer.step()
    return Reference(begin, losses, gradients, _copied(model))


def _copied(model: nn.Module) -> State:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}
