"""Lion: an optimiser whose sample groups tell each other the signs of their updates, or a few levels of them.

Lion takes the sign of a mean of momentum and gradient for its update (Chen et al., arXiv 2302.06675, algorithm 2). So
sample groups need not agree on gradients, only on signs: each has momentum of its own, and the updates are combined
(Distributed Lion, arXiv 2404.00438; Lion Cub, Ishikawa et al., arXiv 2411.16462).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.parallel.lion.alike import check_alike
from voxload.parallel.lion.buckets import MOMENTUM, Bucket, accumulated_as, buckets_of, turn
from voxload.parallel.lion.gathering import gathered, of_group
from voxload.parallel.lion.hook import average_in_groups
from voxload.parallel.lion.levels import Combine, levels_of
from voxload.parallel.lion.votes import STEPS, Ballot, opened
from voxload.parallel.lion.wire import Wire

BUCKET = 8 * 2**20
"""Numbers of a bucket, at most, unless one parameter alone has more."""


class Lion(torch.optim.Optimizer):
    """Lion on a process grid; used by one thread of each rank, all ranks alike.

    `step` combines what the sample groups would do, and does it. Before that, gradients of the ranks of a group are
    averaged in full precision: by `step` itself, by `reduce_gradients` where they are looked at in between, or by a
    DistributedDataParallel that `attach` was given.

    Parameters
    ----------
    params
        Parameters, or groups of them with options, as torch's optimisers take them; equal on all ranks.
    grid
        This rank's view of the grid; alone by default.
    lr
        Step size.
    betas
        Weight of the momentum in an update, and in the momentum.
    weight_decay
        Of it, times the step size, weights lose in a step.
    combine
        ``"majority"``: the sign of the sum of the groups' signs. ``"p-bit"``: the sign of the sum of updates of a few
        levels each, over the mean size of a tensor's. ``"mean"``: the mean of either. ``"exact"``: gradients are
        averaged over all ranks instead, and nothing else is sent.
    bits
        Of a number that is sent: 1, 2, 4 or 8; by default 4 for ``"p-bit"``, else 1.
    momentum
        Steps in which all momentum is averaged over the groups once, an equal part in each. 0 averages none. An option
        of groups of parameters, too: layers may have theirs more often.

    Raises
    ------
    UsageError
        For options out of their range, parameters of which a rank has a part alone, and a torch.distributed that is
        not that of the grid. By the first step: when ranks have other parameters, options or weights.

    Notes
    -----
    One rank's update is that of Lion, bit for bit. What is no number on any rank becomes no number on all, as averaged
    gradients would. A parameter without a gradient on some groups has one of zero there; without any it is left alone.
    torch's GradScaler skips a step on all ranks where it does on one.
    """

    _step_supports_amp_scaling = True

    def __init__(  # noqa: PLR0913 - torch's own words for optimisers, and one for each thing that is added
        self,
        params: Any,
        grid: ProcessGrid | None = None,
        *,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        combine: str = "majority",
        bits: int | None = None,
        momentum: int = 0,
    ) -> None:
        self._grid = ProcessGrid() if grid is None else grid
        self.levels = levels_of(combine, bits, groups=self._grid.groups)
        """What an update becomes on its way."""
        options = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "momentum": momentum, STEPS: 0}
        self._layout: tuple[Any, ...] = ()
        self._buckets: list[Bucket] = []
        self._made: Wire | None = None
        self._is_attached = False
        self._is_reduced = False
        super().__init__(params, options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with options of its own; see torch."""
        super().add_param_group(param_group)
        _check(self.param_groups[-1])

    @property
    def bytes_across(self) -> int:
        """Bytes that this rank has sent to other sample groups so far, but for what DistributedDataParallel sends."""
        return self._wire.bytes_across

    def attach(self, model: DistributedDataParallel) -> None:
        """Let a model of all ranks average gradients inside sample groups alone, while it runs backward.

        With ``combine="exact"`` it goes on to average over all of them. All ranks call this, before the first step.
        Raises UsageError for a model whose process group is not the world.
        """
        self._is_attached = True
        if self.levels.combine is not Combine.EXACT:
            average_in_groups(model, self._wire)

    @torch.no_grad()
    def reduce_gradients(self) -> None:
        """Average gradients over the ranks of this sample group, in place; then they may be clipped or unscaled.

        Nothing is done behind a model that is attached, whose gradients are means already. All ranks call this.
        """
        if not self._is_attached and not self._is_reduced:
            self._prepare()
            for bucket in self._buckets:
                self._reduce(bucket)
        self._is_reduced = True

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step on all ranks; return the closure's loss. See torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._prepare()
        if self._is_skipped():
            self._is_reduced = False
            return loss
        self.reduce_gradients()
        self._is_reduced = False
        ballots = list(self._cast())
        for ballot in ballots:
            ballot.count()
        for ballot in ballots:
            self._apply(ballot)
        self._average_momentum()
        for options in self.param_groups:
            options[STEPS] += 1
        return loss

    def gathered_state_dict(self) -> dict[str, Any] | None:
        """Return `state_dict` with the momentum of all groups ``(groups, ...)``, on rank 0, else None.

        All ranks call this. `state_dict` itself has the momentum of this rank's group.
        """
        return gathered(self.state_dict(), self._wire)

    def load_gathered_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `gathered_state_dict` returned; where there are other groups, from its mean momentum."""
        self.load_state_dict(of_group(state, self._grid))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for options in self.param_groups:
            options.setdefault("momentum", 0)
            options.setdefault(STEPS, 0)  # of another implementation

    @property
    def _wire(self) -> Wire:
        if self._made is None:
            kinds = {each.device.type for options in self.param_groups for each in options["params"]}
            if len(kinds) != 1:
                raise UsageError("Lion's parameters", found=f"devices of types {sorted(kinds)}", expected="one type")
            self._made = Wire(self._grid, kinds.pop())
        return self._made

    def _prepare(self) -> None:
        """Deal parameters out to buckets anew where others are trained now; see that ranks are alike."""
        layout = tuple((id(each), each.requires_grad) for options in self.param_groups for each in options["params"])
        if layout == self._layout:
            return
        shards = self._wire.groups * self._wire.places
        self._buckets = [
            bucket for options in self.param_groups for bucket in buckets_of(options, shards=shards, limit=BUCKET)
        ]
        check_alike(self.param_groups, self._grid, self.levels)
        self._layout = layout

    def _is_skipped(self) -> bool:
        """Tell whether a GradScaler found what is not finite, on any rank; else bring gradients to their own scale."""
        found = getattr(self, "found_inf", None)
        if found is None:
            return False
        is_exact = self.levels.combine is Combine.EXACT
        ranks = self._grid.world_size if is_exact else self._grid.group_size
        if ranks > 1 and not (self._is_attached or self._is_reduced):
            raise UsageError(
                "Lion under a GradScaler",
                found=f"gradients that {ranks} ranks have not added up",
                expected="reduce_gradients() before the scaler looks at them",
                remedy="call optimizer.reduce_gradients() before scaler.unscale_(optimizer) or scaler.step(optimizer)",
            )
        if self._wire.is_anywhere(found):
            return True
        scale = getattr(self, "grad_scale", None)
        gradients = [each.grad for options in self.param_groups for each in options["params"] if each.grad is not None]
        if scale is not None and gradients:
            torch._foreach_div_(gradients, scale.to(gradients[0].device))
        return False

    def _reduce(self, bucket: Bucket) -> None:
        """Average gradients over the group, or over all ranks; what no rank has stays None."""
        is_exact = self.levels.combine is Combine.EXACT
        ranks = self._grid.world_size if is_exact else self._grid.group_size
        if ranks == 1:
            return
        first, count = bucket.parameters[0], len(bucket.parameters)
        flat = torch.zeros(bucket.size + count, dtype=first.dtype, device=first.device)
        views = bucket.views(flat)
        for number, (each, view) in enumerate(zip(bucket.parameters, views, strict=True)):
            if each.grad is not None:
                view.copy_(each.grad)
                flat[bucket.size + number] = 1
        added = self._wire.added_in_world(flat) if is_exact else self._wire.added_in_group(flat)
        found = added.wait().div_(ranks)
        is_there = found[bucket.size :].tolist()
        for each, view, share in zip(bucket.parameters, views, is_there, strict=True):
            if share > 0:
                each.grad = view.clone() if each.grad is None else each.grad.copy_(view)

    def _cast(self) -> Iterator[Ballot]:
        """Begin to send what this group would do, bucket by bucket."""
        if not self._buckets:
            return
        kind = max((bucket.size for bucket in self._buckets), default=0)
        scratch: dict[Any, Tensor] = {}
        for bucket in self._buckets:
            first = bucket.parameters[0]
            key = accumulated_as(first.dtype), first.device
            if key not in scratch:
                scratch[key] = torch.zeros(kind, dtype=key[0], device=key[1])
            yield opened(bucket, self.state, scratch[key], self.levels, self._wire)

    def _apply(self, ballot: Ballot) -> None:
        """Change weights by what was decided, and momentum by this group's gradients."""
        for each, update in ballot.decided():
            options, momentum = ballot.bucket.options, self.state[each][MOMENTUM]
            beta, decay, rate = options["betas"][1], options["weight_decay"], options["lr"]
            each.mul_(1.0 - rate * decay)
            each.add_(update, alpha=-rate)
            momentum.mul_(beta)
            if each.grad is not None:
                momentum.add_(each.grad, alpha=1.0 - beta)

    def _momentum(self, parameter: Tensor) -> Tensor:
        """Return a momentum whose numbers lie one behind the other; one that was loaded may lie as its weight does."""
        state = self.state[parameter]
        state[MOMENTUM] = state[MOMENTUM].contiguous()
        found: Tensor = state[MOMENTUM]
        return found

    def _average_momentum(self) -> None:
        """Average those parts of the momentum over all groups whose turn it is."""
        if self._grid.groups == 1 or self.levels.combine is Combine.EXACT:
            return
        due: dict[tuple[Any, Any], list[Tensor]] = {}
        for options in self.param_groups:
            if options["momentum"]:
                momenta = [self._momentum(each) for each in options["params"] if each in self.state]
                for number, first, end in turn([one.numel() for one in momenta], options["momentum"], options[STEPS]):
                    part = momenta[number].view(-1)[first:end]
                    due.setdefault((part.dtype, part.device), []).append(part)
        for parts in due.values():
            mean = self._wire.mean_across(torch.cat(parts))
            for each, part in zip(parts, torch.split(mean, [len(each) for each in parts]), strict=True):
                each.copy_(part)


def _check(options: Mapping[str, Any]) -> None:
    """Refuse options out of their range, and parameters that are not whole."""
    rate, betas, momentum = options["lr"], options["betas"], options["momentum"]
    if not rate >= 0 or len(betas) != 2 or not all(0 <= each < 1 for each in betas):
        raise UsageError("Lion", found=f"lr={rate}, betas={betas}", expected="a rate of 0 or more, two betas in [0, 1)")
    if not isinstance(momentum, int) or momentum < 0 or not options["weight_decay"] >= 0:
        raise UsageError(
            "Lion",
            found=f"momentum={momentum!r}, weight_decay={options['weight_decay']!r}",
            expected="steps between averages, or 0 for none, and a decay of 0 or more",
        )
    for each in options["params"]:
        if isinstance(each, DTensor) or not each.is_floating_point():
            raise UsageError(
                "Lion's parameters",
                found="a part of one (DTensor)" if isinstance(each, DTensor) else f"one of {each.dtype}",
                expected="whole ones of real numbers",
                remedy="use another optimiser for weights that FSDP or shard_weights=True has cut",
            )
