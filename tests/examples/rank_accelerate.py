"""What Accelerate makes of a voxload loader, on real ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import RandomSampler

import voxload
from tests.examples.cases import DEALINGS
from voxload.errors import UsageError
from voxload.loader.accelerate import prepare

Loader = torch.utils.data.DataLoader[Any]


@dataclass(frozen=True)
class _Case:
    """A loader under one configuration."""

    configuration: dict[str, Any]
    make: Callable[[], Loader]

    def stream(self) -> list[Any]:
        """Return two epochs: of each batch its targets, a sum of its volume, and what Accelerate says of the end."""
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**self.configuration))
        set_seed(0)
        loader = prepare(accelerator, self.make())
        told = [accelerator.gradient_state]
        rows: list[Any] = [len(loader)]
        for _ in range(2):
            for x, y in loader:
                state = told[0]
                rows.append([y.tolist(), int(x.sum(dtype=torch.int64)), state.end_of_dataloader, state.remainder])
            rows.append("end")
        return rows


def look(universes: str) -> dict[str, Any]:
    """Return, by name, the streams and the errors of prepared loaders."""
    AcceleratorState._reset_state(reset_partial_state=True)  # that of a process group that is gone
    whole = voxload.VolumeDataset(universes, targets=["Omega_m", "sigma_8"])
    grid = voxload.ProcessGrid.from_env(spatial=(2, 1, 1))
    halves = voxload.VolumeDataset(universes, targets=["Omega_m", "sigma_8"], grid=grid)
    return {
        "streams": dict(_streams(whole)),
        "dealt": _Case({}, lambda: voxload.DataLoader(halves, batch_size=2, shuffle=True)).stream(),
        "drawn": _Case({}, lambda: voxload.DataLoader(halves, batch_size=2, sampler=RandomSampler(halves))).stream(),
        "kept": _kept(whole),
        "errors": list(_errors(universes, whole, halves)),
    }


def _streams(data: voxload.VolumeDataset) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, configuration in DEALINGS.items():
        for drop_last in (False, True):
            given = {"batch_size": 2, "shuffle": True, "drop_last": drop_last}
            cases = {
                "torch": _Case(configuration, lambda given=given: torch.utils.data.DataLoader(data, **given)),  # type: ignore[misc]
                "voxload": _Case(configuration, lambda given=given: voxload.DataLoader(data, **given)),  # type: ignore[misc]
            }
            yield f"{name}, drop_last={drop_last}", {loader: case.stream() for loader, case in cases.items()}


def _kept(data: voxload.VolumeDataset) -> dict[str, Any]:
    """Return what is left of a loader's own arguments, and of Accelerate's, after it was prepared, twice."""
    accelerator = Accelerator(cpu=True)
    made = voxload.DataLoader(data, batch_size=2, transform=voxload.transforms.Log1p(), staging="64MiB", num_workers=3)
    loader: Any = prepare(accelerator, made)
    again = accelerator.prepare(loader)
    x, _ = next(iter(loader))
    return {
        "kind": type(loader.base_dataloader).__name__,
        "threads": loader.num_workers,
        "staging": loader.staging,
        "dtype": str(x.dtype),
        "batches": loader.stats().batches,
        "is_same": again is loader,
        "is_instance": isinstance(loader, voxload.DataLoader),
    }


def _errors(universes: str, whole: voxload.VolumeDataset, halves: voxload.VolumeDataset) -> Iterator[str]:
    """Yield what is said of loaders that cannot be prepared."""
    foreign = voxload.VolumeDataset(universes, grid=voxload.ProcessGrid(world_size=4, rank=0))
    cases: list[tuple[dict[str, Any], Callable[[Accelerator], Any]]] = [
        ({}, lambda accelerator: accelerator.prepare(voxload.DataLoader(whole))),
        ({"dispatch_batches": True}, lambda accelerator: prepare(accelerator, voxload.DataLoader(whole))),
        ({}, lambda accelerator: prepare(accelerator, voxload.DataLoader(whole, batch_size=None))),
        ({}, lambda accelerator: prepare(accelerator, voxload.DataLoader(foreign))),
        ({"split_batches": True}, lambda accelerator: prepare(accelerator, voxload.DataLoader(halves, batch_size=2))),
    ]
    for configuration, call in cases:
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**configuration))
        try:
            call(accelerator)
        except UsageError as error:
            yield str(error)
        else:
            yield "no error"
