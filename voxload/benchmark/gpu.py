"""Gpu: keeps a CUDA device busy until a given moment, on the batch that was delivered."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from voxload.errors import UsageError

cuda: Any = torch.cuda
"""Its events are public, and torch leaves them without types."""
_CYCLES = 20_000_000
"""Clock cycles of the kernel that is timed to learn the rate: some 10 ms, so that its launch does not count."""
_FIRST = 0.9
"""Share of the time that is left that a kernel gets: the rate changes with the load, and too long cannot be mended."""
_LAUNCH = 20e-6
"""Seconds of launching a kernel and hearing of its end, for which no kernel can be made."""


class Gpu:
    """Keeps the current CUDA device busy with kernels on the current stream; used by one thread.

    A batch in host memory is brought to the device first, as a training loop would do; that is part of the time. Every
    byte is read once. The device computes on one multiprocessor: power and memory bandwidth are not those of training.

    Raises
    ------
    UsageError
        Without a CUDA device.
    """

    def __init__(self) -> None:
        if not cuda.is_available():
            raise UsageError(
                "compute 'gpu'",
                found="no CUDA device",
                expected="one for this process",
                remedy="see that torch is built for CUDA and CUDA_VISIBLE_DEVICES names a device, or say sleep or spin",
            )
        self._device = torch.device("cuda", cuda.current_device())
        _kernel(_CYCLES // 100)  # the first launch loads the module
        self._rate = _CYCLES / _timed(_CYCLES)

    def last(self, stop: float, batch: Any) -> None:
        """Return at `stop`, the work on the current stream done; later where bringing and reading the batch takes so.

        Only the current stream is waited for: the loader copies the next batch on another one meanwhile.
        """
        for tensor in tensors_in(batch):
            # Every type can be copied, and not every one be summed.
            tensor.to(self._device, non_blocking=True).clone()
        cuda.current_stream().synchronize()
        share = _FIRST
        while (left := stop - time.perf_counter()) > _LAUNCH:
            cycles = max(1, int((left * share - _LAUNCH) * self._rate))
            spent = _timed(cycles)
            if left > 100 * _LAUNCH:
                self._rate = cycles / spent
            share = 1.0
        while time.perf_counter() < stop:
            pass


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a batch, in order; what is neither a tensor nor a collection is left out."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from tensors_in(part)
    elif isinstance(batch, list | tuple):
        for part in batch:
            yield from tensors_in(part)


def _timed(cycles: int) -> float:
    """Run a kernel of so many cycles; return its seconds on the device."""
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    _kernel(cycles)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def _kernel(cycles: int) -> None:
    """Launch a kernel of so many cycles of the device's clock."""
    cuda._sleep(cycles)  # noqa: SLF001 - torch's own tests stand on it, and it needs no compiler
