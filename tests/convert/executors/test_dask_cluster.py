"""Conversion by a real Dask cluster: whatever happens to its workers, the result is that of one process."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import zarr

from tests.support import scripts
from voxload.convert import ConvertOptions, Gridding, GridUnit, Hints, ParticleChoice, Progress, Share, convert
from voxload.convert.executors import dask_cluster as joining
from voxload.convert.plan.planning import plan_volumes
from voxload.convert.plan.tiles import LIBRARY_BYTES
from voxload.convert.write.lock import LOCK_NAME
from voxload.convert.write.volume import remove_lock, volume_lock
from voxload.errors import DataError, NotFoundError, StorageError, UsageError
from voxload.files.lock import BusyError
from voxload.geometry import Box

Array = npt.NDArray[Any]
pytestmark = pytest.mark.timeout(300)

VOLUMES, SHAPE, CHUNKS = 12, (48, 20, 24), (8, 8, 8)
SLABS = 6
OPTIONS = ConvertOptions(chunks=CHUNKS, max_memory=LIBRARY_BYTES + 2**22, workers=1, checksums=True)
IMPORTED = ("voxload.convert", "distributed")
"""By every process."""
SCHEDULER = """
import asyncio, sys
from distributed import Scheduler
async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False, scheduler_file=sys.argv[1]) as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()
asyncio.run(main())
"""
WORKER = """
import asyncio, os, signal, sys
from distributed import Worker
from voxload.convert.write.ledger import Ledger
address, trap = sys.argv[1:]
record = Ledger.add
def add(self, step):
    record(self, step)
    if "figures" in step:
        try:
            os.unlink(trap)
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
Ledger.add = add
async def main():
    async with Worker(address, nthreads=1, memory_limit=0, dashboard=False) as worker:
        print(worker.address, flush=True)
        await worker.finished()
asyncio.run(main())
"""
"""A worker that kills itself when it has recorded the first slab of a volume, if it is the first to find the trap."""
WRITER = """
import os, signal, sys
from pathlib import Path
from voxload.convert.write.volume import volume_lock
with volume_lock(Path(sys.argv[1])):
    print("writing", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
"""A writer that stops for good while it writes a volume, and is neither dead nor at work."""


@dataclass(frozen=True)
class Machines:
    """A cluster of processes."""

    address: str
    """Its scheduler's address."""
    file: Path
    """Its scheduler's file."""
    trap: Path
    """While this file is there, the first worker that records a slab dies."""
    workers: list[scripts.Script]
    """Its workers."""


def _line(process: scripts.Script) -> str:
    """Wait for the next line that a process writes."""
    return process.stdout.readline().strip()


@contextmanager
def _process(script: str, *arguments: str) -> Iterator[scripts.Script]:
    """Run a script until the end of the block."""
    with scripts.started(script, *arguments, imports=IMPORTED) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Give a scheduler and workers, each a process: four where one of them is to be killed, two in the short run."""
    pytest.importorskip("distributed")
    folder = tmp_path_factory.mktemp("cluster")
    count = 4 if any(item.name == "test_killed_worker" for item in request.session.items) else 2
    with ExitStack() as stack:
        address = _line(stack.enter_context(_process(SCHEDULER, str(folder / "scheduler.json"))))
        workers = [stack.enter_context(_process(WORKER, address, str(folder / "trap"))) for _ in range(count)]
        assert all(_line(worker).startswith("tcp://") for worker in workers)
        yield Machines(address, folder / "scheduler.json", folder / "trap", workers)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder of raw cubes."""
    folder = tmp_path_factory.mktemp("raw")
    for number in range(VOLUMES):
        cube = np.random.default_rng(number).normal(size=SHAPE).astype("<f4")
        np.save(folder / f"cube{number:02}.npy", cube)
    return folder


@pytest.fixture(scope="module")
def alone(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Give what one process converts the raw cubes to."""
    folder = tmp_path_factory.mktemp("alone")
    convert(raw, folder, options=OPTIONS)
    return _files(folder)


def _files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file in a folder, hidden or not, by its name in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _on(cluster: str) -> ConvertOptions:
    return ConvertOptions(
        chunks=CHUNKS, max_memory=OPTIONS.max_memory, workers=1, checksums=True, scheduler=str(cluster)
    )


@pytest.mark.long
def test_killed_worker(tmp_path: Path, raw: Path, cluster: Machines, alone: dict[str, bytes]) -> None:
    """With a worker killed under way, another one goes on where its record ends: every file is that of one process."""
    cluster.trap.touch()
    told: list[Progress] = []
    report = convert(raw, tmp_path / "out", options=_on(cluster.address), progress=told.append)
    assert not cluster.trap.exists()
    codes = [worker.poll() for worker in cluster.workers]
    assert sorted(codes, key=str) == [-signal.SIGKILL, None, None, None]
    assert _files(tmp_path / "out") == alone
    size = VOLUMES * int(np.prod(SHAPE)) * 4
    assert report.bytes_read + report.bytes_resumed == size
    assert report.bytes_resumed == size // VOLUMES // SLABS
    assert (len(report.converted), report.is_catalogued, report.summed) == (VOLUMES, True, VOLUMES)
    counts = [one.bytes_done for one in told]
    assert counts == sorted(counts)
    assert (counts[-1], told[-1].bytes_total) == (size, size)
    assert len(counts) > VOLUMES


@pytest.mark.long
def test_scheduler_file_and_second_run(tmp_path: Path, raw: Path, cluster: Machines, alone: dict[str, bytes]) -> None:
    """A scheduler file serves as well as an address; what is complete is not sent to any worker."""
    convert(raw, tmp_path / "out", options=_on(str(cluster.file)))
    assert _files(tmp_path / "out") == alone
    again = convert(raw, tmp_path / "out", options=_on(str(cluster.file)))
    assert (again.converted, len(again.skipped), again.chunks) == ((), VOLUMES, 0)
    assert _files(tmp_path / "out") == alone


@pytest.mark.long
def test_conversion_that_is_broken_off(tmp_path: Path, raw: Path, cluster: Machines, alone: dict[str, bytes]) -> None:
    """When the client goes, workers let go of their volumes, and one process can end the work at once."""

    def break_off(progress: Progress) -> None:
        raise KeyboardInterrupt(progress.sample)

    with pytest.raises(KeyboardInterrupt):
        convert(raw, tmp_path / "out", options=_on(cluster.address), progress=break_off)
    assert not (tmp_path / "out" / LOCK_NAME).exists()
    convert(raw, tmp_path / "out", options=OPTIONS)
    assert {name: data for name, data in _files(tmp_path / "out").items() if not name.endswith(".lock")} == alone


def test_error_of_a_worker(tmp_path: Path, raw: Path, cluster: Machines) -> None:
    """What is wrong with a source reaches the caller as the same error; the folder is free afterwards."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(2):
        np.savez_compressed(folder / f"x{number}.npz", cube=np.load(raw / f"cube0{number}.npy"))
    broken = bytearray((folder / "x1.npz").read_bytes())
    middle = len(broken) // 2
    broken[middle : middle + 64] = bytes(64)
    (folder / "x1.npz").write_bytes(broken)
    with pytest.raises(DataError) as here:
        convert(folder, tmp_path / "here", options=OPTIONS)
    with pytest.raises(DataError) as there:
        convert(folder, tmp_path / "there", options=_on(cluster.address))
    assert str(there.value) == str(here.value)
    assert "x1.npz" in str(there.value)
    assert not (tmp_path / "there" / LOCK_NAME).exists()


@pytest.mark.long
def test_scheduler_that_is_none(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address where no scheduler answers, and a file that is none, are refused before anything is written."""
    monkeypatch.setattr(joining, "_CONNECT", 1.0)  # it is asked again and again for so long
    for scheduler, error in (("tcp://127.0.0.1:9", NotFoundError), (str(raw / "cube00.npy"), UsageError)):
        with pytest.raises(error, match=r"--scheduler .*"):
            convert(raw, tmp_path / "out", options=_on(scheduler))
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_lost_scheduler(tmp_path: Path, raw: Path, alone: dict[str, bytes]) -> None:
    """A scheduler that dies under way is a clear error, and the next run goes on."""
    pytest.importorskip("distributed")
    with _process(SCHEDULER, str(tmp_path / "file")) as scheduler:
        address = _line(scheduler)
        with _process(WORKER, address, str(tmp_path / "trap")) as worker:

            def kill(progress: Progress) -> None:
                assert progress.bytes_done
                worker.send_signal(signal.SIGSTOP)
                scheduler.kill()

            with pytest.raises(StorageError, match=r"--scheduler tcp.*run the same command again"):
                convert(raw, tmp_path / "out", options=_on(address), progress=kill)
        convert(raw, tmp_path / "out", options=OPTIONS)
    assert _files(tmp_path / "out") == alone


def test_one_writer_per_volume(tmp_path: Path) -> None:
    """A second writer of a volume waits for a time that ends, is told who has it, and gets it when that one is dead."""
    final = tmp_path / "x.zarr"
    with _process(WRITER, str(final)) as writer:
        assert _line(writer) == "writing"
        with (
            pytest.raises(BusyError, match=rf"lock of process {writer.pid} on .* after 0\.1 s") as caught,
            volume_lock(final, patience=0.1),
        ):
            raise AssertionError
        assert isinstance(pickle.loads(pickle.dumps(caught.value)), BusyError)  # noqa: S301 - our own
        os.kill(writer.pid, signal.SIGKILL)
        with volume_lock(final, patience=60):
            assert [path.name for path in tmp_path.iterdir()] == [".x.zarr.partial-convert.lock"]
    assert not list(tmp_path.iterdir())


def test_lock_that_a_killed_writer_left(tmp_path: Path) -> None:
    """The file of a dead writer's lock is removed with what else it left."""
    with _process(WRITER, str(tmp_path / "x.zarr")) as writer:
        assert _line(writer) == "writing"
    assert list(tmp_path.iterdir())
    remove_lock(tmp_path / "x.zarr")
    assert not list(tmp_path.iterdir())


def test_cluster_and_array_tasks() -> None:
    """A conversion is shared by array tasks or by a cluster, not by both."""
    with pytest.raises(UsageError, match=r"--scheduler: found task 1 of 2"):
        ConvertOptions(share=Share(1, 2), scheduler="tcp://host:8786")


def _write_zarr(path: Path, cube: Array) -> None:
    zarr.create_group(path).create_array("volume", data=cube)


def _write_universe(path: Path, cube: Array) -> None:
    with h5py.File(path, "w") as file:
        file["full"], file["unitPar"] = np.stack([cube] * 4, axis=-1), np.zeros(4)


def _write_hdf5(path: Path, cube: Array) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("density", data=cube, chunks=(4, 4, 4), compression="gzip")


def _write_nrrd(path: Path, cube: Array) -> None:
    header = f"NRRD0004\ntype: float\ndimension: 3\nsizes: {' '.join(['8'] * 3)}\nencoding: raw\nendian: little\n\n"
    path.write_bytes(header.encode() + cube.tobytes())


def _write_metaimage(path: Path, cube: Array) -> None:
    facts = "ObjectType = Image\nNDims = 3\nBinaryDataByteOrderMSB = False\nDimSize = 8 8 8\n"
    header = f"{facts}ElementType = MET_FLOAT\nElementDataFile = LOCAL\n"
    path.write_bytes(header.encode() + cube.tobytes())


def _write_plain(path: Path, cube: Array) -> None:
    path.write_bytes(cube.tobytes())


def _write_camels(path: Path, cube: Array) -> None:
    np.save(path, cube[np.newaxis])


def _write_particles(path: Path, cube: Array) -> None:
    px, py, pz = np.random.default_rng(0).random((3, *cube.shape)) * 8
    np.savez(path, px=px, py=py, pz=pz)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("x.npy", np.save),
        ("df_m_8_z=0.npy", np.save),
        ("Grids_HI_IllustrisTNG_LH_8_z=0.00.npy", _write_camels),
        ("x.npz", np.savez),
        ("packed.npz", np.savez_compressed),
        ("x_8x8x8.f32", _write_plain),
        ("x.nrrd", _write_nrrd),
        ("x.mha", _write_metaimage),
        ("universe.hdf5", _write_universe),
        ("x.h5", _write_hdf5),
        ("x.zarr", _write_zarr),
        ("ics.npz", _write_particles),
    ],
)
def test_volumes_can_be_sent(
    tmp_path: Path, name: str, write: Callable[[Path, Array], None], *, law: Callable[[str], ModuleType]
) -> None:
    """Sources of every kind reach another process whole, and give the same voxels there."""
    raw = tmp_path / "raw"
    raw.mkdir()
    write(raw / name, np.random.default_rng(1).random((8, 8, 8)).astype("<f4"))
    gridding = Gridding(8, unit=GridUnit.COUNT, choice=ParticleChoice(box_size=8.0)) if name == "ics.npz" else None
    hints = Hints(axes="DHW" if name == "x.h5" else None)
    (volume,) = plan_volumes(raw, tmp_path / "out", ConvertOptions(gridding=gridding, hints=hints)).volumes
    sent = pickle.loads(pickle.dumps(volume))  # noqa: S301 - our own
    assert (sent.manifest, sent.tiling, sent.final) == (volume.manifest, volume.tiling, volume.final)
    read_box, box = law("source").read_box, Box.whole((8, 8, 8))
    np.testing.assert_array_equal(read_box(sent.sources[0], box), read_box(volume.sources[0], box))
