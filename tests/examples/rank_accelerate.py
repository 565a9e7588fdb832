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


class Own(voxload.DataLoader):
    """A class of the user's, which names none of the arguments that it passes on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


@dataclass(frozen=True)
class _Case:
    """A loader under one configuration."""

    configuration: dict[str, Any]
    make: Callable[[], Loader]

    def prepared(self) -> Any:
        """Return the loader, prepared as in a job that begins."""
        set_seed(0)
        return prepare(self.accelerator, self.make())

    @property
    def accelerator(self) -> Accelerator:
        return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**self.configuration))

    def stream(self) -> list[Any]:
        """Return two epochs: of each batch its targets, a sum of its volume, and what Accelerate says of the end."""
        loader, state = self.prepared(), self.accelerator.gradient_state
        rows: list[Any] = [len(loader)]
        for _ in range(2):
            for x, y in loader:
                rows.append([y.tolist(), int(x.sum(dtype=torch.int64)), state.end_of_dataloader, state.remainder])
            rows.append("end")
        return rows

    def resumed(self) -> dict[str, Any]:
        """Return the targets of two epochs in one go, and of a job that ends in the second and one that goes on."""
        whole, first, second = self.prepared(), self.prepared(), self.prepared()
        expected = [y.tolist() for _ in range(2) for _, y in whole]
        found = [y.tolist() for _, y in first]
        begun = iter(first)
        found += [next(begun)[1].tolist() for _ in range(2)]
        second.load_state_dict(first.state_dict())
        return {"whole": expected, "parts": found + [y.tolist() for _, y in second]}


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
        "device": _Case({}, lambda: voxload.DataLoader(whole, batch_size=2, shuffle=True, device="cpu")).stream(),
        "resumed": [
            _Case({"use_seedable_sampler": True}, lambda: voxload.DataLoader(whole, 2, shuffle=True)).resumed(),
            _Case({}, lambda: voxload.DataLoader(halves, 2, shuffle=True)).resumed(),
        ],
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
    made = Own(data, batch_size=2, transform=voxload.transforms.Log1p(), staging="64MiB", num_workers=3)
    loader: Any = prepare(accelerator, made)
    again = accelerator.prepare(loader)
    x, _ = next(iter(loader))
    return {
        "kind": type(loader.base_dataloader).__name__,
        "threads": loader.num_workers,
        "staging": loader.staging,
        "keep": loader.keep,
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
