"""PyTorch Lightning: the trainer puts a DistributedSampler into the loaders and makes them anew by their class.

torchrun --nproc-per-node=2 examples/frameworks/lightning_ddp.py universes/ --loader voxload

With ``--loader torch voxload`` it trains twice, to the same losses.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor, nn

import voxload

LOADERS = {"torch": torch.utils.data.DataLoader, "voxload": voxload.DataLoader}


class Regression(lightning.LightningModule):
    """A small regression network for universes of 32^3 x 4."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv3d(4, 8, 3, padding=1),
            nn.LeakyReLU(),
            nn.MaxPool3d(4),
            nn.Conv3d(8, 16, 3, padding=1),
            nn.LeakyReLU(),
            nn.MaxPool3d(4),
            nn.Flatten(),
            nn.Linear(16 * 2**3, 2),
        )

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """Return the loss of one batch."""
        loss = self._loss(batch)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: list[Tensor]) -> None:
        """Log the loss of one batch that is not trained on."""
        self.log("validation_loss", self._loss(batch), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)

    def _loss(self, batch: list[Tensor]) -> Tensor:
        x, y = batch
        return nn.functional.mse_loss(self.network(x.float().log1p()), y)


class Losses(lightning.Callback):
    """Prints each epoch's losses, mean over all ranks."""

    def __init__(self, loader: str) -> None:
        self.loader = loader

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Print what the epoch's steps logged; its validation has run by now."""
        losses = {name: value.item() for name, value in trainer.callback_metrics.items()}
        pl_module.print(f"{self.loader}: epoch {trainer.current_epoch}, {losses}")


def main() -> None:
    """Train with each loader that was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("universes", help="a catalogue's folder")
    parser.add_argument("--loader", nargs="+", choices=LOADERS, default=["voxload"])
    arguments = parser.parse_args()
    catalog = voxload.Catalog.read(Path(arguments.universes) / "catalog.parquet")
    parts = [catalog.select(catalog.samples[:-2]), catalog.select(catalog.samples[-2:])]
    training, validation = (voxload.VolumeDataset(part, targets=["Omega_m", "sigma_8"]) for part in parts)
    for name in arguments.loader:
        lightning.seed_everything(0, verbose=False)
        trainer = lightning.Trainer(
            accelerator="cpu",
            strategy="ddp",
            devices=voxload.ProcessGrid.from_env().world_size,
            max_epochs=2,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            callbacks=[Losses(name)],
        )
        make_loader = LOADERS[name]
        # Not forked: this process has threads by now, whose locks a fork would copy as they are.
        workers: dict[str, Any] = {
            "num_workers": 1,
            "persistent_workers": True,
            "multiprocessing_context": "forkserver",
        }
        trainer.fit(
            Regression(),
            make_loader(training, batch_size=2, shuffle=True, **workers),
            make_loader(validation, batch_size=1, **workers),
        )


if __name__ == "__main__":
    main()
