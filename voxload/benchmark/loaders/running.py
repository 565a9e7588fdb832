"""Running: the epoch that is under way, of loaders that have one at a time."""

from __future__ import annotations

from collections.abc import Generator

from torch import Tensor


class Running:
    """Holds the epoch that was begun last, and ends it; used by one thread."""

    def __init__(self) -> None:
        self._epoch: Generator[Tensor] | None = None

    def begin(self, epoch: Generator[Tensor]) -> Generator[Tensor]:
        """Note an epoch whose batches are about to be taken, and return it."""
        self._epoch = epoch
        return epoch

    def end(self) -> None:
        """End the epoch under way, if there is one, with all that it holds."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            epoch.close()
