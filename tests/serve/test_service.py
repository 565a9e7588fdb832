"""The service and loaders: streams are those of loaders without a cache, whatever happens to the service."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import warnings
from contextlib import closing
from pathlib import Path
from signal import Signals
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import zarr

import voxload
from tests.serve.conftest import until
from tests.serve.loading import (
    PROGRAM,
    SAMPLES,
    SIDE,
    from_service,
    loader_of,
    same,
    served,
    stream,
    tensors,
    write_samples,
)
from tests.support.settled import settle
from voxload.errors import DataError, NotFoundError, StorageError, UsageError
from voxload.serve.asking import figures
from voxload.serve.place import service_path

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Return a folder of samples."""
    return write_samples(tmp_path / "samples")


CASES: dict[str, dict[str, Any]] = {
    "whole": {},
    "one field": {"fields": {"x": "x"}},
    "a block with its halo": {
        "grid": voxload.ProcessGrid(spatial=(2, 1, 2), world_size=4, rank=2),
        "halo": 3,
        "boundary": "periodic",
    },
    "patches that overlap": {"patches": voxload.Patches((7, 6, 5), per_sample=3)},
    "turned": {"augment": voxload.augment.Augment(voxload.augment.CubeSymmetries(), seed=3)},
}


IN_MINUTES = ("a block with its halo", "patches that overlap")


@pytest.mark.filterwarnings("ignore:torch.distributed is not initialised")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=() if name in IN_MINUTES else pytest.mark.long)
        for name, options in CASES.items()
    ],
)
def test_streams_are_the_same(samples: Path, path: Path, options: dict[str, Any]) -> None:
    """Of three epochs; from the second on nothing is read, by two loaders that draw in other orders."""
    with served(path):
        for seed in (1, 2):
            expected = stream(loader_of(samples, None, seed=seed, **options), 3)
            loader = loader_of(samples, voxload.Cache(service=path), seed=seed, **options)
            same(stream(loader, 3), expected)
            assert loader.stats().sources["storage"].fetches == 0
            assert from_service(loader) > 0
            loader.close()
            reads = figures(path)["reads"]
            assert reads["failed"] == 0
            assert reads["done"] == figures(path)["memory"]["blocks"]


@pytest.mark.long
def test_epochs_that_are_left_early(samples: Path, path: Path) -> None:
    """The service is told of what comes instead; the stream is that of a loader with memory of its own.

    Not always that of a loader without a cache, which draws from its sampler as far ahead as torch's workers do.
    """

    def left_early(loader: voxload.DataLoader) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for batches in (1, 4, 3, 0, 4):
            for number, batch in enumerate(loader):
                if number == batches:
                    break
                found.extend(tensor.clone() for tensor in tensors(batch))
        return found

    with served(path):
        loader = loader_of(samples, voxload.Cache(service=path))
        own = loader_of(samples, voxload.Cache(memory="16MiB"))
        same(left_early(loader), left_early(own))
        own.close()
        (job,) = figures(path)["jobs"]
        assert 0 <= job["ahead"] <= 4 * SAMPLES
        loader.close()
    assert loader.stats().sources["storage"].fetches == 0


@pytest.mark.long
def test_zarr_and_npy(tmp_path: Path, path: Path) -> None:
    """Volumes in chunks of their own files, in shards, and plain ones."""
    voxels = np.random.default_rng(0).integers(0, 99, (4, 1, SIDE, SIDE, SIDE), dtype=np.int16)
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", voxels[number])
        for name, shards in (("chunks", None), ("shards", (1, 16, 16, 16))):
            stored = zarr.create_array(
                tmp_path / name / f"{number}.zarr",
                shape=voxels.shape[1:],
                dtype=np.int16,
                chunks=(1, 8, 8, 8),
                shards=shards,
            )
            stored[...] = voxels[number]
    settle(tmp_path)
    with served(path):
        for pattern in ("*.npy", "chunks/*.zarr", "shards/*.zarr"):
            data = voxload.VolumeDataset(str(tmp_path / pattern), axes="CDHW")
            loader = voxload.DataLoader(data, batch_size=1, num_workers=2, cache=voxload.Cache(service=path))
            for _ in range(2):
                for number, (tensor,) in enumerate(map(list, map(tensors, loader))):
                    assert np.array_equal(tensor[0].numpy(), voxels[number])
            assert loader.stats().sources["storage"].fetches == 0
            loader.close()


@pytest.mark.long
def test_jobs_at_once_read_once(samples: Path, path: Path) -> None:
    """Four with orders of their own; each stream is its own."""
    expected = [stream(loader_of(samples, None, seed=seed), 2) for seed in range(4)]
    found: dict[int, list[torch.Tensor]] = {}
    with served(path):
        loaders = [loader_of(samples, voxload.Cache(service=path), seed=seed) for seed in range(4)]
        threads = [
            threading.Thread(target=lambda seed=seed: found.__setitem__(seed, stream(loaders[seed], 2)))
            for seed in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for seed in range(4):
            same(found[seed], expected[seed])
            loaders[seed].close()
        assert figures(path)["reads"]["done"] == 2 * SAMPLES


@pytest.mark.long
def test_a_set_that_does_not_fit(samples: Path, path: Path) -> None:
    """Streams are the same; the service never has more than it may."""
    expected = stream(loader_of(samples, None), 4)
    with served(path, "100kB"):
        loader = loader_of(samples, voxload.Cache(service=path))
        same(stream(loader, 4), expected)
        found = figures(path)
        assert found["memory"]["used"] <= found["memory"]["capacity"] == 100_000
        assert found["memory"]["dropped"] > 0
        loader.close()


@pytest.mark.long
@pytest.mark.parametrize("trouble", [Signals.SIGKILL, pytest.param(Signals.SIGSTOP, marks=pytest.mark.long)])
def test_a_service_in_trouble(samples: Path, path: Path, trouble: Signals) -> None:
    """Killed or stopped in the middle: the stream goes on, that is told once, and a service that is there is used."""
    found: list[torch.Tensor] = []
    with warnings.catch_warnings(record=True) as told, served(path, "100kB") as service:
        warnings.simplefilter("always")
        loader = loader_of(samples, voxload.Cache(service=path))
        for epoch in range(2):
            for number, batch in enumerate(loader):
                found.extend(tensor.clone() for tensor in tensors(batch))
                if (epoch, number) == (0, 1):
                    service.send_signal(trouble)
        assert loader.stats().sources["storage"].fetches > 0
        if trouble is Signals.SIGSTOP:
            service.send_signal(Signals.SIGCONT)
            _comes_back(loader, found)
        else:
            service.wait()
            with served(path):
                _comes_back(loader, found)
        loader.close()
    same(found, stream(loader_of(samples, None), len(found) // SAMPLES))
    assert len([one for one in told if "service at" in str(one.message)]) == 1


def _comes_back(loader: voxload.DataLoader, found: list[torch.Tensor]) -> None:
    """Let a loader go on until blocks come from a service again."""
    before = from_service(loader)

    def has_come() -> bool:
        found.extend(stream(loader))
        return from_service(loader) > before

    until(has_come)


@pytest.mark.long
def test_what_was_written_anew(samples: Path, path: Path) -> None:
    """A loader that begins afterwards has what is stored, though the service has what was."""
    cache = voxload.Cache(service=path)
    with served(path):
        first = loader_of(samples, cache)
        before = stream(first)
        first.close()
        with h5py.File(samples / "other", "w") as file, h5py.File(samples / "03.h5") as old:
            for name in ("x", "y"):
                file.create_dataset(name, data=old[name][...] + 1, chunks=(1, 8, 8, 8), compression="gzip")
        (samples / "other").replace(samples / "03.h5")
        settle(samples)
        expected = stream(loader_of(samples, None))
        assert any(not torch.equal(one, other) for one, other in zip(before, expected, strict=True))
        second = loader_of(samples, cache)
        same(stream(second), expected)
        second.close()


@pytest.mark.long
def test_errors_are_the_same(samples: Path, path: Path) -> None:
    """A file that is cut short: the words are those of a loader without a service."""
    broken = samples / "05.h5"
    with broken.open("r+b") as file:
        file.truncate(broken.stat().st_size // 2)
    settle(samples)
    words = []
    with served(path):
        for cache in (None, voxload.Cache(service=path)):
            loader = loader_of(samples, cache)
            with pytest.raises((DataError, OSError)) as caught:
                stream(loader)
            words.append(str(caught.value))
            loader.close()
    assert words[0] == words[1]
    assert "05.h5" in words[0]


def test_no_service(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is named has to be there; with ``auto`` that is told, and all is read from the storage."""
    gone = tmp_path / "gone"
    with (
        closing(loader_of(samples, voxload.Cache(service=gone))) as loader,
        pytest.raises(NotFoundError, match="nobody"),
    ):
        stream(loader)
    monkeypatch.setenv("VOXLOAD_SERVICE", str(gone))
    assert service_path("auto") == service_path() == gone
    with closing(loader_of(samples, voxload.Cache(service="auto"))) as loader:
        with pytest.warns(RuntimeWarning, match="no service listens at .*gone: blocks are read from the storage"):
            found = stream(loader)
        assert loader.stats().sources["storage"].fetches > 0
    same(found, stream(loader_of(samples, None)))


@pytest.mark.long
def test_a_service_that_never_answers(samples: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails a job that named it; with ``auto`` that is told, and all is read from the storage."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        path.parent.mkdir()
        silent.bind(str(path))
        silent.listen()
        with (
            closing(loader_of(samples, voxload.Cache(service=path))) as loader,
            pytest.raises(StorageError, match="no answer"),
        ):
            stream(loader)
        monkeypatch.setenv("VOXLOAD_SERVICE", str(path))
        with closing(loader_of(samples, voxload.Cache(service="auto"))) as loader:
            with pytest.warns(RuntimeWarning, match="no answer.*: blocks are read from the storage"):
                found = stream(loader)
            assert loader.stats().sources["storage"].fetches > 0
    same(found, stream(loader_of(samples, None)))


def test_what_cannot_be_served(samples: Path, path: Path) -> None:
    """A cache of both kinds, and a data set that reads in a way of its own."""
    with pytest.raises(UsageError, match="a service, and memory, disk or codec of its own"):
        voxload.Cache(service="auto", memory="1GiB")

    class Own(voxload.VolumeDataset):
        def read_into(self, *arguments: Any, **options: Any) -> Any:
            return super().read_into(*arguments, **options)

    data = Own(str(samples / "*.h5"), fields={"x": "x"}, axes="CDHW")
    loader = voxload.DataLoader(data, cache=voxload.Cache(service=path))
    with closing(loader), pytest.raises(UsageError, match="service for a Own: found a read_into"):
        stream(loader)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROGRAM), "serve", *words], capture_output=True, text=True, check=False)


def test_the_command(samples: Path, path: Path, tmp_path: Path) -> None:
    """It says what it keeps and for whom, ends on SIGTERM with status 0, and errors are one line."""
    with served(path) as service:
        loader = loader_of(samples, voxload.Cache(service=path))
        stream(loader)
        table = _run("status", "--socket", str(path))
        assert table.returncode == 0
        assert Path.cwd().name in table.stdout
        assert "16 reads, 0 of them from disk" in " ".join(table.stdout.split())
        told = json.loads(_run("status", "--socket", str(path), "--json").stdout)
        (job,) = told["jobs"]
        assert (job["uid"], job["pid"], job["blocks"]) == (os.geteuid(), os.getpid(), 16)
        second = _run("--memory", "1MiB", "--socket", str(path))
        assert second.returncode == 2
        assert second.stderr == f"voxload: {path}: found a service that listens there, expected none; stop it\n"
        service.terminate()
        assert service.wait() == 0
        assert not path.exists()
        loader.close()
    nobody = _run("status", "--socket", str(tmp_path / "nobody"))
    assert nobody.returncode == 2
    assert nobody.stderr.endswith("found nobody, expected a service that listens there; start one by voxload serve\n")
    assert _run("--memory", "0").returncode == 2
    assert _run("--memory", "1PiB", "--socket", str(path)).returncode == 2
