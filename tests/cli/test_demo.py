"""``voxload demo``: the whole path on a few universes, and the control's labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.image import imread

from tests.support.launches import fork_launches
from voxload.catalog.table import Catalog, Entry
from voxload.cli.main import run
from voxload.cli.network import demo
from voxload.cli.network.demo import shuffled_labels


@pytest.mark.parametrize(
    ("groups", "starts"),
    [(1, "forks"), *(pytest.param(groups, "launches", marks=pytest.mark.long) for groups in (1, 2))],
)
def test_the_whole_path_runs(
    groups: int, starts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Universes are made, converted, trained on by groups of 2 blocks, reported and drawn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "PROCESSES", 2 * groups)
    if starts == "forks":
        fork_launches(monkeypatch)
    assert run(["demo", "--universes", "16", "--epochs", "1", "--json"]) == 0
    printed = capfd.readouterr()
    result = json.loads(printed.out)
    assert len(list(Path("demo-data").rglob("*.hdf5"))) == 16
    assert [rank["coords"] for rank in result["ranks"]] == [[0, 0, 0], [1, 0, 0]] * groups
    assert [rank["group"] for rank in result["ranks"]] == [0, 0, 1, 1][: 2 * groups]
    # 14 universes in batches over the groups: so many for each rank, of half a universe.
    assert {rank["bytes_needed"] for rank in result["ranks"]} == {14 // groups * 4 * 16 * 32 * 32 * 2}
    assert {rank["decode_amplification"] for rank in result["ranks"]} == {1.0}
    assert "held-out MAE of sigma_8 is" in " ".join(printed.err.split())
    for name in ("blocks.png", "learning.png", "stall.png"):
        assert imread(Path("demo-report") / name)[..., :3].std() > 0.05, name
    assert not list(tmp_path.rglob("*.partial-*"))


def test_shuffled_labels_keep_their_values_but_not_their_places(tmp_path: Path) -> None:
    """Training labels are dealt out anew, whole rows of them; held-out ones stay."""
    entries = [
        Entry(f"s{index:02}", f"{index}.zarr", dataset, (4, 4, 4), "<i2", "DHW", 1, {"a": index, "b": -index})
        for index in range(20)
        for dataset in ("x", "y")
    ]
    true = Catalog.from_entries(entries, tmp_path)
    training = [f"s{index:02}" for index in range(15)]
    control = shuffled_labels(true, training, seed=0)
    dealt = [control.entry(sample, "x").targets for sample in training]
    assert sorted(targets["a"] for targets in dealt) == list(range(15))
    assert sum(targets["a"] != index for index, targets in enumerate(dealt)) > 8
    for sample in true.samples:
        x, y = (control.entry(sample, dataset) for dataset in ("x", "y"))
        assert x.targets == y.targets
        assert x.targets["b"] == -x.targets["a"]
        assert x.path == true.entry(sample, "x").path
        if sample not in training:
            assert x.targets == true.entry(sample, "x").targets
