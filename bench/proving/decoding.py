"""Part: chunks that the GPU decodes, and files that it reads by itself, where nvCOMP and kvikIO are installed.

Neither is a part of voxload: these are measured options. Both are called as their own documentation shows.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numcodecs import Zstd

from bench.proving.clock import seconds
from bench.proving.parts import is_there
from bench.proving.told import Setting, Teller

_CHUNK = 2**19
"""Bytes of a chunk: 64^3 of int16."""
_ROUNDS = 5


def prove_decoding(setting: Setting, tell: Teller) -> None:
    """Measure each that is here; on the host alone there is none."""
    count = 4 if setting.is_small else 512
    chunks = np.random.default_rng(0).integers(0, 12, (count, _CHUNK // 2), np.int16)
    device = torch.device(setting.device)
    errors: list[Exception] = []
    for title, module, measure in (("nvCOMP", "nvidia.nvcomp", _nvcomp), ("kvikIO", "kvikio", _kvikio)):
        first, ratio = _CLAIMS[title]
        why = _lack(module, device)
        if why:
            tell.lack(first, why)
            tell.lack(ratio, why)
            continue
        try:
            ours, theirs = measure(chunks, device)
        except Exception as error:  # noqa: BLE001 - it is raised once the other one had its turn
            errors.append(error)
            continue
        tell.figures(first, *(chunks.nbytes / one / 1e9 for one in theirs))
        tell.figures(ratio, *(our / their for our, their in zip(ours, theirs, strict=True)))
    if errors:
        raise errors[0]


_CLAIMS = {
    "nvCOMP": ("nvCOMP: GB/s of decoded zstd chunks", "nvCOMP: over decoding on the host and copying"),
    "kvikIO": ("kvikIO: GB/s from a file to the device", "kvikIO: over reading and copying"),
}


def _lack(module: str, device: torch.device) -> str:
    if device.type != "cuda":
        return "needs a GPU"
    return "" if is_there(module) else f"needs {module}"


def _nvcomp(chunks: np.ndarray[Any, Any], device: torch.device) -> tuple[list[float], list[float]]:
    """Return the seconds of one host thread that decodes and copies, and those of nvCOMP, by round."""
    nvcomp: Any = importlib.import_module("nvidia.nvcomp")
    zstd = Zstd(level=3)
    stored = [zstd.encode(chunk) for chunk in chunks]
    codec = nvcomp.Codec(algorithm="Zstd", bitstream_kind=nvcomp.BitstreamKind.RAW)

    def on_host() -> torch.Tensor:
        decoded = np.stack([np.frombuffer(zstd.decode(chunk), np.int16) for chunk in stored])
        return torch.from_numpy(decoded).to(device)

    def on_device() -> Any:
        arrays = nvcomp.as_arrays(stored)
        # From version 6 on they are one object, and a list before.
        there = arrays.cuda() if hasattr(arrays, "cuda") else [array.cuda() for array in arrays]
        return codec.decode(there, data_type="<i2")

    decoded = on_device()  # its arrays look into it
    found = torch.stack([torch.as_tensor(array, device=device).view(torch.int16) for array in decoded])
    _check(found, chunks)
    return _in_turns(device, on_host, on_device)


def _kvikio(chunks: np.ndarray[Any, Any], device: torch.device) -> tuple[list[float], list[float]]:
    """Return the seconds of a read and a pinned copy, and those of kvikIO, by round; the page cache has the file."""
    kvikio: Any = importlib.import_module("kvikio")
    target = torch.empty(chunks.shape, dtype=torch.int16, device=device)
    pinned = torch.empty(chunks.shape, dtype=torch.int16, pin_memory=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chunks"
        chunks.tofile(path)

        def on_host() -> None:
            with path.open("rb", buffering=0) as file:
                file.readinto(pinned.view(torch.uint8).flatten().numpy().data)
            target.copy_(pinned, non_blocking=True)

        def on_device() -> None:
            with kvikio.CuFile(path, "r") as file:
                file.read(target)

        target.zero_()
        on_device()
        _check(target, chunks)
        return _in_turns(device, on_host, on_device)


def _check(found: torch.Tensor, chunks: np.ndarray[Any, Any]) -> None:
    if not np.array_equal(found.cpu().numpy().reshape(chunks.shape), chunks):
        raise RuntimeError("other voxels than those that were stored")


def _in_turns(
    device: torch.device, ours: Callable[[], object], theirs: Callable[[], object]
) -> tuple[list[float], list[float]]:
    rounds = [(seconds(device, ours), seconds(device, theirs)) for _ in range(1 + _ROUNDS)][1:]  # the first warms up
    first, second = zip(*rounds, strict=True)
    return list(first), list(second)
