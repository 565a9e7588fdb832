"""Real ranks train five networks under DDP, FSDP and HSDP, in every way of running, as one process does in float64."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import processes
from tests.support.ranks import RANK, printed_by_ranks
from tests.support.splitting.combination import FUNCTIONAL, NETWORKS, Combination, covering, everything
from tests.support.splitting.world import collect, prepare, run_world

TOLERANCE = 1e-12
COVERING = list(covering())


@pytest.mark.long
@pytest.mark.parametrize("network", NETWORKS)
def test_training_equals_one_process(network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Losses and gradients of five steps, and weights and running statistics after them, are equal to rounding."""
    chosen = [how for how in COVERING if how.network == network]
    worst = run_world(chosen, tmp_path, limit=processes.LIMIT)
    lines = ["", *(f"{how!s:<60}{_figures(worst[str(how)])}" for how in chosen)]
    with capsys.disabled():
        print("\n".join(lines))  # noqa: T201 - the table is what the test is for
    assert max(value for row in worst.values() for value in row.values()) <= TOLERANCE


@pytest.mark.parametrize("network", ["unet3d-lbann", pytest.param(FUNCTIONAL, marks=pytest.mark.long)])
def test_hybrid_shards_equal_one_process(network: str, tmp_path: Path) -> None:
    """A U-Net under HSDP on four ranks, two groups of two blocks: the shortest of the comparisons above."""
    assert max(_trained(Combination(network, 4, (2, 1, 1), "hsdp", "checkpointing"), tmp_path).values()) <= TOLERANCE


@pytest.mark.matrix
@pytest.mark.parametrize(
    "how", [how for how in everything() if how not in COVERING], ids=lambda how: str(how).replace(" ", "-")
)
def test_every_other_combination_equals_one_process(
    how: Combination, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So are they for all other networks, grids up to 8 ranks, wrappers and ways of running; each alone, in minutes."""
    row = _trained(how, tmp_path)
    with capsys.disabled():
        print(f"\n{how!s:<60}{_figures(row)}")  # noqa: T201 - as above
    assert max(row.values()) <= TOLERANCE


def _trained(how: Combination, folder: Path) -> dict[str, float]:
    """Return the worst errors of one combination over its ranks."""
    prepare([how], folder)
    printed_by_ranks("tests.support.splitting.rank", RANK, str(how.world), folder, ranks=how.world)
    (row,) = collect([how], folder).values()
    return row


def _figures(row: dict[str, float]) -> str:
    """Return the errors of one combination for the table."""
    return "".join(f"  {name} {value:.1e}" for name, value in row.items())
