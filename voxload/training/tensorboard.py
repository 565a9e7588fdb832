"""Scalars: a run's figures in TensorBoard's logs; the one file that stands on tensorboard."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from voxload.errors import UsageError
from voxload.training.result import Epoch


def check_tensorboard() -> None:
    """Raise UsageError where tensorboard is not installed: a run should not find out after an hour."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UsageError(
            "--tensorboard", found="no package tensorboard", expected="it", remedy="pip install tensorboard"
        )


class Scalars:
    """Writes figures by number of the epoch; one rank makes one. Used by one thread.

    Parameters
    ----------
    folder
        Where the logs go; made when missing.
    names
        What is predicted: one for each error, or for each Dice.
    behind
        Epochs that are behind. Figures of later ones, which a killed run left, are not shown.

    Raises
    ------
    UsageError
        When tensorboard is not installed.
    """

    def __init__(self, folder: str, names: Sequence[str], *, behind: int) -> None:
        check_tensorboard()
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - optional, and seconds to import

        self._names = tuple(names)
        self._writer: Any = SummaryWriter(folder, purge_step=behind + 1)

    def add(self, number: int, epoch: Epoch, *, rate: float) -> None:
        """Write one epoch's figures, at once."""
        for tag, value in _figures(epoch, self._names).items():
            self._writer.add_scalar(tag, value, number)
        self._writer.add_scalar("learning rate", rate, number)
        self._writer.flush()

    def close(self) -> None:
        """End the log."""
        self._writer.close()


def _figures(epoch: Epoch, names: Sequence[str]) -> dict[str, float]:
    """Return an epoch's figures by TensorBoard's tags."""
    figures = {"loss/training": epoch.training_loss, "loss/held-out": epoch.validation_loss, "seconds": epoch.seconds}
    figures |= {f"MAE/{name}": mae for name, mae in zip(names, epoch.validation_mae, strict=False)}
    figures |= {f"Dice/class {name}": dice for name, dice in zip(names, epoch.validation_dice, strict=False)}
    return figures | ({"Dice/mean": epoch.mean_dice} if epoch.validation_dice else {})
