"""What torch's words mean where threads read a VolumeDataset."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import get_worker_info

import voxload
from voxload.errors import DataError, UsageError


def test_a_sample_that_cannot_be_read_is_named(folder: Path, tmp_path: Path, same: Callable[..., None]) -> None:
    """The error of a broken file has the type and the text that it has without a loader, and names the file."""
    for index in range(3):
        (tmp_path / f"u{index}.h5").write_bytes((folder / f"u{index:02}.h5").read_bytes())
    (tmp_path / "u1.h5").write_bytes(b"nothing of the kind")
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5", fields={"x": "full"}, axes="DHWC")

    def check(kind: Any, given: Any) -> Any:
        batches = iter(kind(given, 1))
        first = next(batches)
        with pytest.raises(DataError, match=r"u1\.h5") as caught:
            next(batches)
        return [first, type(caught.value).__name__, str(caught.value), next(batches), next(batches, "end")]

    same(check, data)
    data.close()


def test_threads_are_no_workers(data: voxload.VolumeDataset) -> None:
    """Nothing is loaded by a process: get_worker_info is None wherever a function of the user's runs."""
    seen = []

    def look(samples: list[Any]) -> int:
        seen.append((get_worker_info(), threading.current_thread() is threading.main_thread()))
        return len(samples)

    assert sum(voxload.DataLoader(data, 4, num_workers=2, collate_fn=look)) == len(data)
    assert set(seen) == {(None, True)}


def test_a_class_with_items_of_its_own_is_loaded_as_in_torch(folder: Path) -> None:
    """What a subclass makes of its items is never left out: it is loaded by torch's own loader, with a warning."""

    class Named(voxload.VolumeDataset):
        def __getitem__(self, index: int) -> Any:
            x, *_ = super().__getitem__(index)
            return {"x": x, "name": self.sample_ids[index]}

    data = Named(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC")
    with pytest.warns(UserWarning, match="Named has items of its own"):
        loader = voxload.DataLoader(data, 4)
    ours, theirs = next(iter(loader)), next(iter(TorchLoader(data, 4)))
    assert ours["name"] == theirs["name"]
    assert torch.equal(ours["x"], theirs["x"])
    with pytest.raises(UsageError, match="items of its own"):
        voxload.DataLoader(data, cache=voxload.Cache(memory="1MiB"))
    data.close()


def test_ranks_of_a_group_draw_the_same_whatever_their_items_are(folder: Path) -> None:
    """A subclass' samples are shared out among the groups, not among the ranks."""

    class Second(voxload.VolumeDataset):
        def __getitem__(self, index: int) -> Any:
            return index

    drawn = []
    for rank in range(4):
        grid = voxload.ProcessGrid((2, 1, 1), 4, rank)
        data = Second(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", grid=grid)
        with pytest.warns(UserWarning, match="items of its own"):
            drawn.append([int(batch) for batch in voxload.DataLoader(data, shuffle=True)])
    assert drawn[0] == drawn[1]
    assert drawn[2] == drawn[3]
    assert set(drawn[0]) | set(drawn[2]) == set(range(11))
