"""What Lightning makes of a voxload loader, on real ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

import voxload

Loader = torch.utils.data.DataLoader[Any]


class _Network(lightning.LightningModule):
    """One convolution and a mean; makes its training loader itself where it is given how."""

    def __init__(self, grid: voxload.ProcessGrid, hook: _Hook | None = None) -> None:
        super().__init__()
        whole = nn.Sequential(nn.Conv3d(4, 2, 3, padding=1), nn.AvgPool3d(8), nn.Flatten(), nn.Linear(2 * 4**3, 2))
        self.network = voxload.engine.shard(whole, grid, shape=(32, 32, 32))
        self.losses: list[float] = []
        self.hook = hook
        if hook is not None:
            self.train_dataloader = hook  # type: ignore[method-assign]

    def training_step(self, batch: list[Tensor]) -> Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self.network(x.float().log1p()), y)
        self.losses.append(loss.item())
        return loss

    def predict_step(self, batch: list[Tensor]) -> Tensor:
        """Return the targets of the samples that this rank was given."""
        return batch[1]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


@dataclass
class _Hook:
    """Makes a loader as ``train_dataloader`` would; positional arguments are what Lightning must not lose."""

    make: type[Loader]
    data: voxload.VolumeDataset
    made: list[Loader] = field(default_factory=list)

    def __call__(self) -> Loader:
        loader = self.make(self.data, 2, shuffle=True)
        self.made.append(loader)
        return loader


def look(universes: str) -> dict[str, Any]:
    """Return, by name, the losses with either loader and what became of the loader that was given."""
    targets = ["Omega_m", "sigma_8"]
    whole = voxload.VolumeDataset(universes, targets=targets)
    grid = voxload.ProcessGrid.from_env(spatial=(2, 1, 1))
    halves = voxload.VolumeDataset(universes, targets=targets, grid=grid)
    return {
        "given": _given(whole),
        "hook": {
            loader.__module__: _hooked(loader, whole) for loader in (torch.utils.data.DataLoader, voxload.DataLoader)
        },
        "spatial": _spatial(halves, grid),
        "predicted": _predicted(whole),
        "resumed": _resumed(whole, Path(universes).parent / "checkpoint"),
    }


def _trainer(callbacks: Sequence[lightning.Callback] = ()) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=voxload.ProcessGrid.from_env().world_size,
        max_epochs=2,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )


def _fit(grid: voxload.ProcessGrid, loader: Loader) -> tuple[list[float], Any]:
    """Return every step's loss and the loader that was trained with."""
    lightning.seed_everything(0, verbose=False)
    trainer, network = _trainer(), _Network(grid)
    trainer.fit(network, loader)
    return network.losses, trainer.train_dataloader


def _given(data: voxload.VolumeDataset) -> dict[str, Any]:
    """Return what is left of a loader's own arguments after a sampler was put in."""
    log = voxload.transforms.Log1p()
    loader = voxload.DataLoader(data, batch_size=2, shuffle=True, num_workers=3, transform=log, staging="64MiB")
    _, used = _fit(voxload.ProcessGrid(), loader)
    return {
        "is_new": used is not loader,
        "kind": type(used).__name__,
        "sampler": type(used.sampler).__name__,
        "kept": used.transform is log and (used.num_workers, used.staging, used.batch_size) == (3, "64MiB", 2),
        "batches": used.stats().batches,
    }


def _hooked(make: type[Loader], data: voxload.VolumeDataset) -> dict[str, Any]:
    """Return the losses with a loader that the network's own hook makes."""
    lightning.seed_everything(0, verbose=False)
    hook = _Hook(make, data)
    trainer, network = _trainer(), _Network(voxload.ProcessGrid(), hook)
    trainer.fit(network)
    used = trainer.train_dataloader
    sampler = type(getattr(used, "sampler", None)).__name__
    return {"losses": network.losses, "is_new": used is not hook.made[0], "sampler": sampler}


def _spatial(data: voxload.VolumeDataset, grid: voxload.ProcessGrid) -> dict[str, Any]:
    """Return the losses with samples that both ranks share, with torch's loader and sampler and with ours alone."""
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=grid.groups, rank=grid.group)
    expected, _ = _fit(grid, torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler))
    loader = voxload.DataLoader(data, batch_size=2, shuffle=True)
    losses, used = _fit(grid, loader)
    return {"torch": expected, "voxload": losses, "is_given": used is loader}


class _Saving(lightning.Callback):
    """Saves a checkpoint behind one step."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        self.step = step

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        """Save, if it is that step."""
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


def _resumed(data: voxload.VolumeDataset, path: Path) -> dict[str, Any]:
    """Return the losses of a run, and those of one that goes on from its checkpoint in the middle of the last epoch."""
    losses = {}
    for name, begin, callbacks in (("whole", None, [_Saving(path, 4)]), ("rest", path, [])):
        lightning.seed_everything(0, verbose=False)
        trainer, network = _trainer(callbacks), _Network(voxload.ProcessGrid())
        trainer.fit(network, voxload.DataLoader(data, batch_size=2, shuffle=True), ckpt_path=begin)
        losses[name] = network.losses
    return losses


def _predicted(data: voxload.VolumeDataset) -> dict[str, Any]:
    """Return the targets that each loader hands to this rank for prediction."""
    found = {}
    for make in (torch.utils.data.DataLoader, voxload.DataLoader):
        parts = _trainer().predict(_Network(voxload.ProcessGrid()), make(data, batch_size=2)) or []
        found[make.__module__] = [part.tolist() for part in parts]  # type: ignore[union-attr]
    return found
