"""What only a GPU has: its memory, graphs that are captured, and processes that may not use it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

import voxload
from tests.support import scripts
from tests.support.devices import be_busy
from voxload.data.layout import FieldLayout
from voxload.errors import UsageError
from voxload.loader.device.copiers import HostCopier, with_index
from voxload.loader.device.ring import DeviceRing
from voxload.loader.reading.staging import BatchLayout

pytestmark = pytest.mark.gpu

SIDE = 64
NBYTES = 4 * SIDE**3 * 2
"""Of a sample: 2 MiB, from which on torch's allocator rounds sizes by little."""
_ROUNDING = 2**21


@pytest.fixture
def large(tmp_path: Path) -> Iterator[voxload.VolumeDataset]:
    """Yield samples of 2 MiB."""
    rng = np.random.default_rng(0)
    for number in range(6):
        with h5py.File(tmp_path / f"u{number}.h5", "w") as file:
            file["full"] = rng.integers(0, 900, (4, SIDE, SIDE, SIDE), np.int16)
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5", fields={"x": "full"}, axes="CDHW")
    yield data
    data.close()


@pytest.mark.parametrize("keep", [1, 3])
def test_the_device_holds_one_batch_more_than_is_kept(
    keep: int, large: voxload.VolumeDataset, cuda: torch.device
) -> None:
    """No more memory is ever taken, and all of it comes back."""
    gc.collect()
    before = torch.cuda.memory_allocated(cuda)
    torch.cuda.reset_peak_memory_stats(cuda)
    loader = voxload.DataLoader(large, 1, device=cuda, keep=keep)
    for _ in range(2):
        for batch in loader:
            assert batch[0].device == cuda
            be_busy(cuda)
    assert torch.cuda.max_memory_allocated(cuda) - before <= (keep + 1) * (NBYTES + _ROUNDING)
    loader.close()
    del loader, batch
    gc.collect()
    assert torch.cuda.memory_allocated(cuda) == before


def test_a_graph_is_captured_while_copies_run(large: voxload.VolumeDataset, cuda: torch.device) -> None:
    """A network that is captured in the middle of an epoch, and replayed on each batch, gives what it gives itself."""
    network = torch.nn.Conv3d(4, 2, 3, padding=1).to(cuda)
    still = torch.zeros(1, 4, SIDE, SIDE, SIDE, device=cuda)
    with torch.no_grad():
        for _ in range(3):
            network(still)
    graph: Any = None
    out = torch.empty(0)
    for (x,), (expected,) in zip(voxload.DataLoader(large, 1, device=cuda), TorchLoader(large, 1), strict=True):
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph):
                out = network(still)
        still.copy_(x)
        graph.replay()
        with torch.no_grad():
            # Algorithms may differ, voxels of another sample differ by hundreds.
            torch.testing.assert_close(out, network(expected.to(cuda, torch.float32)), rtol=1e-2, atol=1.0)


def test_too_little_memory_is_told(large: voxload.VolumeDataset, cuda: torch.device) -> None:
    """A device that is full is an error that says how much is needed; with room again, the same loader works."""
    loader = voxload.DataLoader(large, 1, device=cuda)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-6, cuda)
    try:
        with pytest.raises(UsageError, match=r"memory of cuda:0.* expected 4 MiB .*lower keep or batch_size"):
            next(iter(loader))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, cuda)
    assert len(list(loader)) == 6
    loader.close()


def test_what_torch_says_of_memory_is_told() -> None:
    """The same on the host, of a device that says what torch's says."""

    class Full(HostCopier):
        """A device without room."""

        def empty(self, nbytes: int) -> torch.Tensor:
            """Say what torch says."""
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {nbytes} bytes. GPU 0 has none.")

    layout = BatchLayout(1, (FieldLayout((4, 8, 8, 8), np.dtype(np.int16)),))
    with pytest.raises(UsageError, match=r"memory of cpu: found CUDA out of memory, expected 8 KiB .*lower keep"):
        DeviceRing(Full(), layout, keep=1, budget=2**20)


def test_a_fork_of_a_process_with_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch says that CUDA cannot be used here, the error says what to do; it comes before CUDA is called."""
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    with pytest.raises(UsageError, match=r"forked from one that uses CUDA.*spawn or forkserver"):
        with_index(torch.device("cuda", 0))
    assert with_index(torch.device("cpu")) == torch.device("cpu")


_FORKS = """
import os, sys, warnings
import torch, voxload
from voxload.errors import UsageError
warnings.simplefilter("ignore")
data = voxload.VolumeDataset(sys.argv[1], fields={"x": "full"}, axes="CDHW")
loader = voxload.DataLoader(data, 1, device="cuda")
next(iter(loader))
child = os.fork()
if not child:
    status = 1
    try:
        next(iter(voxload.DataLoader(data, 1, device="cuda")))
    except UsageError as error:
        status = 0 if "spawn or forkserver" in str(error) else 2
    finally:
        os._exit(status)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.usefixtures("cuda")
def test_a_real_fork_is_refused(tmp_path: Path) -> None:
    """A process forked from one whose loader has delivered to a GPU gets an error, and does not hang."""
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["full"] = np.zeros((4, 8, 8, 8), np.int16)
    assert scripts.run(_FORKS, f"{tmp_path}/*.h5", imports=()).stdout == "0\n"
