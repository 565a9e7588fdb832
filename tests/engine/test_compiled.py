"""A split network as one compiled graph per rank, by torch's default compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.test_training import TOLERANCE
from tests.support import processes
from tests.support.splitting.combination import Combination
from tests.support.splitting.world import run_world


@pytest.mark.long
def test_a_whole_compiled_graph_trains_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiler makes of a split U-Net gives the same numbers, and no rank waits for another for ever.

    It would order exchanges by the blocks' extents, differently on two ranks, if it were not told to keep their order.
    """
    # Without vector instructions kernels compile in half of the time.
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    how = Combination("unet3d-kits19", 2, (2, 1, 1), "ddp", "compiled", backend="inductor")
    (row,) = run_world([how], tmp_path, limit=processes.LIMIT).values()
    assert max(row.values()) <= TOLERANCE, row
