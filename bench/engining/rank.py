"""Rank: runs networks on its block of one sample, and says what that took; `answering` is its process."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bench.engining.step_profile import peak_bytes, saved_bytes, seconds_by_kind
from bench.engining.watched import Watched
from bench.engining.world import ALL_TO_ALL, AUTO, CHANNELS, NONE, P2P, PLAIN, SHARD, SPATIAL, TARGETS, Job, Way
from bench.harness.children import Answer
from voxload import engine
from voxload.benchmark.measure.turns import seconds
from voxload.grid import ProcessGrid
from voxload.models import CosmoFlow

_RATE = 1e-5
"""Learning rate: samples are noise, and weights shall stay numbers."""
_SEED = 7
_EXCHANGES: dict[str, Callable[[ProcessGrid], engine.Exchange]] = {
    NONE: engine.NoExchange,
    P2P: engine.P2P,
    ALL_TO_ALL: engine.AllToAll,
}
_TRIES = 10
"""Steps after which ``join="auto"`` has made up its mind."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network that trains, and the block that it trains on."""

    model: nn.Module
    x: Tensor
    watch: Watched | None
    """Its exchange, where it has one."""
    optimizer: torch.optim.Optimizer
    prediction: list[float]
    """What it said of the sample before it had learned anything."""


class Rank:
    """Runs networks on this rank's block of one sample.

    Parameters
    ----------
    job, rank
        The world, and the place in it.
    folder
        Where the ranks meet.
    """

    def __init__(self, job: Job, rank: int, folder: Path) -> None:
        self._job = job
        self._grid = ProcessGrid(SPATIAL[job.ranks], job.ranks, rank)
        on_gpu = job.device == "cuda"
        self._device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
        self._dtype = torch.bfloat16 if on_gpu else torch.float32
        self._layout = torch.channels_last_3d if on_gpu else torch.contiguous_format
        if on_gpu:
            torch.cuda.set_device(self._device)
        if job.ranks > 1:
            dist.init_process_group(
                "nccl" if on_gpu else "gloo",
                init_method=f"file://{folder / 'rendezvous'}",
                rank=rank,
                world_size=job.ranks,
                timeout=timedelta(seconds=job.limit),
            )
        torch.manual_seed(_SEED)
        self._sample = torch.randn(1, CHANNELS, *(job.size,) * 3)
        self._y = torch.rand(1, TARGETS).to(self._device, self._dtype)
        self._networks: dict[tuple[Way, bool], Network] = {}

    def prepare(self, way: Way, *, is_ddp: bool, updates: bool) -> dict[str, Any]:
        """Return what a network predicts that has learned nothing, after some steps that make it ready."""
        network = self._network(way, is_ddp=is_ddp)
        for _ in range(_TRIES if way.join == AUTO else 1 + is_ddp):  # after its first, DDP sorts its gradients anew
            self._step(network, updates=updates)
        return {"prediction": network.prediction}

    def train(self, way: Way, *, steps: int, is_ddp: bool, updates: bool) -> dict[str, Any]:
        """Return the seconds of a step, those of this process's threads, and those spent in the exchange.

        Parameters
        ----------
        way
            Which network.
        steps
            Steps in a row; the least counts, and of the other times their means.
        is_ddp
            Whether gradients are averaged over the ranks.
        updates
            Whether a step ends with an update of the weights.
        """
        network = self._network(way, is_ddp=is_ddp)
        self._meet()
        if network.watch:
            network.watch.waited = 0.0
        spent = time.process_time()
        least = self._timed(lambda: self._step(network, updates=updates), steps)
        return {
            "seconds": least,
            "cpu": (time.process_time() - spent) / steps,
            "waited": network.watch.waited / steps if network.watch else 0.0,
        }

    def weigh(self, way: Way) -> dict[str, Any]:
        """Return the bytes that a step saves for backward, and the most that it has."""
        network = self._network(way, is_ddp=False)
        self._step(network, updates=False)  # it leaves the weights' gradients, which are no activations
        saved = saved_bytes(lambda: self._loss(network), network.model.parameters())
        peak = peak_bytes(lambda: self._loss(network).backward(), self._device)  # type: ignore[no-untyped-call] # torch's
        return {"saved": saved, "peak": peak}

    def serial(self, way: Way, *, repeats: int) -> dict[str, Any]:
        """Return the seconds that the messages of a step take alone, and the bytes received in its forward pass."""
        network = self._network(way, is_ddp=True)
        if network.watch is None:
            raise ValueError(f"{way}: no exchange")
        network.watch.received = 0
        with torch.no_grad():
            self._loss(network)
        received = network.watch.received
        again = network.watch.record(lambda: self._step(network, updates=False))
        again()
        self._meet()
        return {"seconds": self._timed(again, repeats), "received": received}

    def profile(self, way: Way, *, steps: int, is_ddp: bool) -> dict[str, Any]:
        """Return the seconds of a step by kind."""
        self.prepare(way, is_ddp=is_ddp, updates=True)
        network = self._network(way, is_ddp=is_ddp)
        self._meet()
        return seconds_by_kind(lambda: self._step(network, updates=True), self._device, repeats=steps)

    def _network(self, way: Way, *, is_ddp: bool) -> Network:
        """Return a network, made when it is first asked for; all ranks must ask for it together."""
        key = way, is_ddp
        if key not in self._networks:
            grid = ProcessGrid(SPATIAL[way.of], way.of) if way.of else self._grid
            block = grid.block((self._job.size,) * 3).slices
            x = self._placed(self._sample[(slice(None), slice(None), *block)])
            torch.manual_seed(_SEED)
            model, watch = _made(way, grid, self._placed(CosmoFlow(self._job.size, CHANNELS, TARGETS)))
            model.eval()
            with torch.no_grad():
                prediction = model(x).float().flatten().tolist()
            model.train()
            outer = DistributedDataParallel(model) if is_ddp else model
            optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
            self._networks[key] = Network(outer, x, watch, optimizer, prediction)
        return self._networks[key]

    def _placed(self, what: Any) -> Any:
        """Return a tensor or a network on the device, in its type and layout."""
        if isinstance(what, Tensor):
            return what.to(self._device, self._dtype).contiguous(memory_format=self._layout)
        return what.to(device=self._device, dtype=self._dtype, memory_format=self._layout)

    def _loss(self, network: Network) -> Tensor:
        return nn.functional.mse_loss(network.model(network.x), self._y)

    def _step(self, network: Network, *, updates: bool) -> None:
        network.optimizer.zero_grad()
        self._loss(network).backward()  # type: ignore[no-untyped-call] # torch's
        if updates:
            network.optimizer.step()

    def _meet(self) -> None:
        if self._job.ranks > 1:
            dist.barrier()

    def _timed(self, call: Callable[[], object], repeats: int) -> float:
        """Return the least seconds of some calls in a row, which others only lengthen; on a GPU by its own clock."""
        if self._device.type == "cpu":
            return min(seconds(call) for _ in range(repeats))
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]  # type: ignore[no-untyped-call] # torch's
        torch.cuda.synchronize()
        marks[0].record()
        for mark in marks[1:]:
            call()
            mark.record()
        torch.cuda.synchronize()
        return min(float(begin.elapsed_time(end)) for begin, end in pairwise(marks)) / 1e3


def _made(way: Way, grid: ProcessGrid, model: nn.Module) -> tuple[nn.Module, Watched | None]:
    """Return a network as `way` says, and its exchange."""
    if way.exchange == PLAIN:
        return model, None
    if way.exchange == SHARD:
        return engine.shard(model, grid), None
    watch = Watched(_EXCHANGES[way.exchange](grid))
    return engine.shard(model, grid, join=way.join, exchange=watch), watch


def answering(job: dict[str, Any], place: int, folder: str) -> Answer:
    """Return what carries out requests: the name of a method of Rank, the fields of a Way, and the other words."""
    told = Job(**job)
    torch.set_num_threads(1)
    with _watchdog(told.limit):
        rank = Rank(told, place, Path(folder))

    def answer(call: str, way: dict[str, Any], words: dict[str, Any]) -> Any:
        """Carry out one."""
        with _watchdog(told.limit):
            return getattr(rank, call)(Way(**way), **words)

    return answer


@contextmanager
def _watchdog(limit: float) -> Iterator[None]:
    """End the process, which says where it is, when what is done inside takes longer, or fails and hangs at its end."""
    faulthandler.dump_traceback_later(limit, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
