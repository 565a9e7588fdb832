"""Stores of zarr-python's contract as sources: whatever is behind them, every block is that of the array."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import fsspec
import h5py
import icechunk
import numpy as np
import obstore.store
import pytest
import torch
import zarr
import zarr.storage
from kerchunk.hdf import SingleHdf5ToZarr
from obspec_utils.registry import ObjectStoreRegistry
from virtualizarr.parsers import HDFParser
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype

import voxload
from tests.laws import reader as laws
from voxload.errors import DataError, StorageError, UsageError
from voxload.geometry import Box
from voxload.readers import Location, open_reader
from voxload.readers.remote.zarrstores import StoreName

SHAPE = (3, 12, 14, 16)
VOXELS = laws.voxels(SHAPE)


def _zarr(store: Any) -> Any:
    group = zarr.open_group(store, mode="w")
    group.create_array("plain", data=VOXELS, chunks=(1, 4, 8, 8))
    group.create_array("sharded", data=VOXELS, chunks=(1, 4, 7, 8), shards=(3, 12, 14, 16))
    return store


def _zipped(folder: Path) -> Any:
    with zarr.storage.ZipStore(folder / "x.zip", mode="w") as store:
        _zarr(store)
    return zarr.storage.ZipStore(folder / "x.zip", mode="r")


def _local(folder: Path) -> Any:
    return _zarr(zarr.storage.LocalStore(folder / "x"))


def _objects(folder: Path) -> Any:
    _local(folder)
    return zarr.storage.ObjectStore(obstore.store.LocalStore(folder / "x"), read_only=True)


def _icechunk(folder: Path) -> Any:
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder / "ice")))
    session = repository.writable_session("main")
    _zarr(session.store)
    session.commit("all of it")
    return repository.readonly_session("main").store


def _hdf5(folder: Path) -> Path:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("plain", data=VOXELS, chunks=(1, 4, 8, 8))
        file.create_dataset("sharded", data=VOXELS, chunks=(1, 4, 7, 8), compression="gzip")
    return folder / "x.h5"


def _kerchunk(folder: Path) -> Any:
    references = SingleHdf5ToZarr(str(_hdf5(folder)), inline_threshold=0).translate()
    files = fsspec.filesystem("reference", fo=references, asynchronous=True, remote_protocol="file")
    return zarr.storage.FsspecStore(files, read_only=True, path="")


def _virtualizarr(folder: Path) -> Any:
    registry = ObjectStoreRegistry({"file://": obstore.store.LocalStore()})
    return HDFParser()(f"file://{_hdf5(folder)}", registry)


STORES: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: _zarr(zarr.storage.MemoryStore()),
    "local": _local,
    "zip": _zipped,
    "obstore": _objects,
    "icechunk": _icechunk,
    "kerchunk": _kerchunk,
    "virtualizarr": _virtualizarr,
}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")  # codecs of numcodecs, which VirtualiZarr names
@pytest.mark.filterwarnings("ignore:The codec:UserWarning")
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", ["plain", "sharded"])
def test_a_store_keeps_the_laws(tmp_path: Path, kind: str, name: str) -> None:
    """Boxes of every kind are those of the array, and no chunk is asked for that a box does not touch."""
    store = STORES[kind](tmp_path)
    location = Location(StoreName(store), name, axes="CDHW")
    with closing(open_reader(location)) as reader:
        laws.check_reader(reader, VOXELS)
        traffic: Any = reader.traffic  # type: ignore[attr-defined] # of readers behind URLs
        if name == "plain":
            before = traffic.counts()
            box = Box((4, 0, 8), (8, 8, 16))
            reader.read_into(box, np.empty((3, 4, 8, 8), VOXELS.dtype))
            assert (traffic.counts() - before).bytes <= reader.cost(box).stored_bytes


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("kind", ["local", "icechunk", "memory"])
def test_a_data_set_of_a_store(tmp_path: Path, kind: str) -> None:
    """The store itself, one of its groups or an array; with tiers, and with readers of a process of its own."""
    store = STORES[kind](tmp_path)
    group = zarr.open_group(store, mode="r")
    for source, fields in ((store, {"x": "plain"}), (group, {"x": "plain"}), (group["plain"], None)):
        data = voxload.VolumeDataset(source, fields=fields, axes="CDHW", halo=1)
        words: list[dict[str, Any]] = [{}, {"cache": voxload.Cache(memory="8MiB")}]
        words += [{"readers": "process"}] if kind != "memory" else []
        for more in words:
            with closing(voxload.DataLoader(data, **more)) as loader:
                for _ in range(2):
                    for (batch,) in loader:
                        assert np.array_equal(batch[0, :, 1:-1, 1:-1, 1:-1].numpy(), VOXELS)
        data.close()


@pytest.mark.long
def test_workers_of_torch_have_the_store(tmp_path: Path) -> None:
    """A data set travels with its store."""
    data = voxload.VolumeDataset(_local(tmp_path), fields={"x": "plain"}, axes="CDHW")
    loader = torch.utils.data.DataLoader(data, num_workers=1, multiprocessing_context="spawn")
    for (batch,) in loader:
        assert np.array_equal(batch[0].numpy(), VOXELS)
    data.close()


def test_names_tell_stores_apart(tmp_path: Path) -> None:
    """Stores that say the same of themselves are two where what they hold may differ; one keeps its name elsewhere."""
    stores = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        with h5py.File(tmp_path / str(number) / "x.h5", "w") as file:
            file.create_dataset("a", data=np.full((4, 4, 4), number, "<i2"), chunks=(2, 4, 4))
        found = SingleHdf5ToZarr(str(tmp_path / str(number) / "x.h5"), inline_threshold=0).translate()
        files = fsspec.filesystem("reference", fo=found, asynchronous=True, remote_protocol="file")
        stores.append(zarr.storage.FsspecStore(files, read_only=True, path=""))
    assert str(stores[0]) == str(stores[1])
    for number, store in enumerate(stores):
        data = voxload.VolumeDataset(store)
        assert (data[0][0] == number).all()
        data.close()
    name = StoreName(_local(tmp_path / "0"), "below")
    again = pickle.loads(pickle.dumps(name))  # noqa: S301 - our own
    assert again == name
    assert again.store == name.store
    memory = [zarr.storage.MemoryStore() for _ in range(2)]
    assert StoreName(memory[0]) == StoreName(memory[0])
    assert StoreName(memory[0]) != StoreName(memory[1])


def test_a_name_alone_opens_nothing(tmp_path: Path) -> None:
    """What a stranger's catalogue names is no store of this process; the name of one that somebody has is enough."""
    name = StoreName(_zarr(zarr.storage.MemoryStore()))
    with closing(open_reader(Location(str(name), "plain", axes="CDHW"))) as reader:
        assert np.array_equal(laws.read(reader, Box.whole(SHAPE[1:])), VOXELS)
    for unknown in ("zarr-store://0123", f"zarr-store:///{tmp_path}"):
        with pytest.raises(UsageError, match="give the data set the store itself"):
            open_reader(Location(unknown, "plain", axes="CDHW"))


class Broken(zarr.storage.WrapperStore[Store]):
    """A store in which chunks are lost, cut short, or answered by an error."""

    def __init__(self, store: Store, trouble: str = "") -> None:
        super().__init__(store)
        self.trouble = trouble

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return an object, or what is wrong with it."""
        found = await super().get(key, prototype, byte_range)
        if "/c/" not in key or not self.trouble or found is None:
            return found
        if self.trouble == "error":
            raise RuntimeError("the far end said no")
        return None if self.trouble == "lost" else prototype.buffer.from_bytes(found.to_bytes()[:-5])

    async def exists(self, key: str) -> bool:
        """Tell whether there is an object."""
        return not (self.trouble == "lost" and "/c/" in key) and await super().exists(key)

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield names."""
        async for name in super().list_dir(prefix):
            yield name


@pytest.mark.parametrize(("trouble", "kind"), [("lost", DataError), ("short", DataError), ("error", StorageError)])
@pytest.mark.parametrize("name", ["plain", "sharded"])
def test_what_a_store_does_not_give_is_an_error(tmp_path: Path, trouble: str, kind: type[Exception], name: str) -> None:
    """Never a fill value: chunks that are gone, cut short, or answered by an exception of the store's own."""
    store = Broken(_local(tmp_path))
    data = voxload.VolumeDataset(store, fields={"x": name}, axes="CDHW")
    assert np.array_equal(data[0][0].numpy(), VOXELS)
    data.close()
    store.trouble = trouble
    with pytest.raises(kind):
        data[0]
