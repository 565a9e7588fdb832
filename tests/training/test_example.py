"""examples/cosmology/segmentation.py: its data, figures and pictures, with runs of one rank instead of processes."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from tests.training.stops import train
from voxload.training.plan import TrainingPlan
from voxload.training.result import TrainingResult

EXAMPLE = Path(__file__).parents[2] / "examples" / "cosmology" / "segmentation.py"


@pytest.mark.long
@pytest.mark.usefixtures("one_thread")
def test_the_example_compares_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both runs are of one plan on their grids; their Dice stand beside what is not learnt, and slices are drawn."""
    spec = importlib.util.spec_from_file_location("voxload_example_segmentation", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    plans: list[tuple[TrainingPlan, int]] = []

    def alone(plan: TrainingPlan, *, processes: int, **_: Any) -> TrainingResult:
        plans.append((plan, processes))
        return train(replace(plan, spatial=(1, 1, 1)))[0]

    monkeypatch.setattr(example, "launch", alone)
    words = ["--samples", "8", "--size", "8", "--epochs", "1", "--folder", str(tmp_path / "data")]
    monkeypatch.setattr(sys, "argv", ["segmentation.py", *words, "--output", str(tmp_path / "report")])
    example.main()
    printed = capsys.readouterr().out
    assert [(plan.spatial, processes) for plan, processes in plans] == [((2, 2, 1), 4), ((1, 1, 1), 1)]
    assert replace(plans[0][0], spatial=(1, 1, 1), output=plans[1][0].output) == plans[1][0]
    for name in (*example.GRIDS, "by chance, as often as they are there", "said of every voxel"):
        assert f"{name}: Dice of small structures" in printed
    pictures = sorted(path.relative_to(tmp_path / "report") for path in tmp_path.rglob("report/*/*.png"))
    assert [path.name for path in pictures] == ["learning.png", "slice.png"] * 2
    assert all(imread(tmp_path / "report" / path)[..., :3].std() > 0.02 for path in pictures)
