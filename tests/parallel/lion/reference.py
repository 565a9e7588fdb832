"""Lion of several groups in one process, number by number as the papers say it: nothing is packed, sent or cut."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Reference:
    """All groups' momenta, and the weights that they share."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        groups: int,
        *,
        combine: str,
        bits: int = 1,
        lr: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.1,
    ) -> None:
        self.weights = [each.clone() for each in weights]
        self.momenta = [[torch.zeros_like(each) for each in weights] for _ in range(groups)]
        self._combine, self._bits, self._lr, self._betas, self._decay = combine, bits, lr, betas, weight_decay
        self._steps = 0

    def step(self, gradients: Sequence[Sequence[Tensor | None]]) -> None:
        """Take a step by the gradients of each group."""
        groups = len(self.momenta)
        limit = max(2 ** (self._bits - 1) - 1, 1)
        for number, weight in enumerate(self.weights):
            own = [each[number] for each in gradients]
            if all(each is None for each in own):
                continue
            known = [torch.zeros_like(weight) if each is None else each for each in own]
            total = torch.zeros_like(weight)
            for group, gradient in enumerate(known):
                update = self.momenta[group][number].mul(self._betas[0]).add(gradient, alpha=1.0 - self._betas[0])
                total += update.sign() if groups == 1 else self._level(update, group)
            decided = total / (groups * limit) if self._combine == "mean" and groups > 1 else total.sign()
            weight.mul_(1.0 - self._lr * self._decay).add_(decided, alpha=-self._lr)
            for group, gradient in enumerate(known):
                momentum = self.momenta[group][number].mul_(self._betas[1])
                momentum.add_(gradient, alpha=1.0 - self._betas[1])
        self._steps += 1

    def average(self, number: int, first: int, end: int) -> None:
        """Average a part of the momentum of one tensor."""
        parts = [each[number].view(-1)[first:end] for each in self.momenta]
        mean = torch.stack(parts).sum(0) / len(parts)
        for each in parts:
            each.copy_(mean)

    def _level(self, update: Tensor, group: int) -> Tensor:
        """Return what a group says of an update."""
        if self._bits == 1:
            places = torch.arange(update.numel()).view(update.shape) % 2
            of_zeros = torch.where(places == (self._steps + group) % 2, 1.0, -1.0)
            return torch.where(update == 0, of_zeros.to(update.dtype), update.sign())
        limit = 2 ** (self._bits - 1) - 1
        mean = update.abs().mean()
        scaled = update * (limit / (2 * mean)) if mean > 0 else update
        return scaled.round().clamp(-limit, limit)
