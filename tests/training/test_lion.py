"""Lion in a training run: groups that vote learn, and a run that was stopped ends as one that was not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.ranks import printed_by_ranks
from voxload.cli.main import run
from voxload.errors import UsageError
from voxload.training.plan import Optimisation
from voxload.training.resume import GlobalBatch, small_differences


def test_a_stopped_run_ends_with_the_same_bits(catalog: Path, tmp_path: Path) -> None:
    """Each group's own momentum included; what is voted on is not what is averaged."""
    printed_by_ranks("tests.training.rank_lion", catalog, tmp_path, ranks=2)
    found = json.loads((tmp_path / "found.json").read_text())
    assert [found[name]["same"] for name in ("exact", "majority", "p-bit")] == [True] * 3
    losses = [found[name]["figures"] for name in ("exact", "majority", "p-bit")]
    assert losses[0] != losses[1] != losses[2]


def test_options_without_lion_are_refused(catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And optimisers that there are not."""
    with pytest.raises(UsageError, match=r"optimizer adam.*lion_bits=4.*--optimizer lion"):
        Optimisation(lion_bits=4)
    words = ["train", str(catalog), "--output", str(tmp_path / "out"), "--optimizer", "sgd"]
    assert run(words) == 2
    assert "--optimizer: found 'sgd', expected adam or lion" in capsys.readouterr().err


def test_votes_of_other_groups_are_told() -> None:
    """Where a run goes on with another number of them."""
    before, after = GlobalBatch(4, 2), GlobalBatch(2, 4)
    (found,) = small_differences(before, after, samples=8, is_normalised=False, is_voted=True)
    assert found == "2 groups combine their updates, not 4, from the mean of their momentum"
