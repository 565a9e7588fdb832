"""``voxload train``: what its options refuse, and its tables in narrow and wide terminals."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console
from rich.table import Table

from voxload.cli.main import run
from voxload.cli.network.report import epoch_table, rank_table, report, source_table
from voxload.prefetch.meter import Traffic
from voxload.training.plan import Optimisation, TrainingPlan
from voxload.training.plots import draw_classes, draw_learning
from voxload.training.result import DiceBaseline, Epoch, RankReport, TrainingResult

WRONG = {
    "a size that is none": (["--memory", "8G"], "write for example 512MiB"),
    "a folder without its size": (["--disk", "tier"], "expected a folder and its size, or neither"),
    "a size without its folder": (["--disk-size", "1GiB"], "expected a folder and its size, or neither"),
    "no such policy": (["--policy", "magic"], "cache policy: found 'magic', expected one of ['clairvoyant'"),
    "no such way to peers": (["--peers", "pigeons"], "cache peers: found 'pigeons'"),
    "no such codec": (["--memory", "1GiB", "--codec", "zip"], "cache codec: found 'zip'"),
    "no folder for figures": (["--prometheus", "none/voxload.prom"], "--prometheus: found no folder none"),
    "no such network": (["--model", "resnet"], "model: found 'resnet', expected 'cosmoflow' or 'unet3d'"),
    "a network without labels": (["--model", "unet3d"], "say for example --labels labels --classes 2"),
    "labels without their network": (["--labels", "y"], "they are the unet3d's"),
    "a layer that is not there": (["--model", "unet3d", "--dropout", "0.5"], "--dropout: found 0.5 for unet3d"),
    "widths that are none": (["--widths", "8;16"], "--widths: found '8;16', expected integers with commas"),
    "no such type": (["--dtype", "float16"], "dtype: found 'float16', expected float32 or float64"),
}


@pytest.mark.parametrize("case", WRONG)
def test_options_that_cannot_be_are_refused_at_once(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 and one line, before any process is started or catalogue read."""
    monkeypatch.chdir(tmp_path)
    words, expected = WRONG[case]
    assert run(["train", "none.parquet", *words]) == 2
    printed = capsys.readouterr().err
    assert expected in printed
    assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_log_without_tensorboard_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 and the remedy, before anything is started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert run(["train", "none.parquet", "--tensorboard", "logs"]) == 2
    assert "--tensorboard: found no package tensorboard" in (printed := capsys.readouterr().err)
    assert "pip install tensorboard" in printed
    assert not list(tmp_path.iterdir())


def test_options_become_a_plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A U-Net's run, as it is handed to the ranks."""
    plans: list[TrainingPlan] = []

    def take(plan: TrainingPlan, **_: Any) -> TrainingResult:
        plans.append(plan)
        return _segmentation()

    monkeypatch.setattr("voxload.cli.network.train.train_as_rank", take)
    words = "--model unet3d --variant lbann --widths 8,16,32 --dataset x --labels y --classes 3 --dtype float64"
    rest = "--spatial 2,1,1 --nproc 4 --checkpoint-every 7 --resume --output out --json"
    assert run(["train", "universes.parquet", *words.split(), *rest.split()]) == 0
    recipe = Optimisation(dropout=0.0, dtype="float64")
    (plan,) = plans
    assert plan == TrainingPlan(
        "universes.parquet",
        "out",
        model="unet3d",
        variant="lbann",
        widths=(8, 16, 32),
        dataset="x",
        labels="y",
        classes=3,
        spatial=(2, 1, 1),
        optimisation=recipe,
        checkpoint_every=7,
        resume=True,
    )
    assert TrainingResult.from_json(capsys.readouterr().out) == _segmentation()


LARGE = Traffic(10**6, 12345, 10**15, 123456.0, 99999.5, 123455.0)
"""A long job's traffic: the widest figures there are."""


def _printed(width: int, *tables: Table) -> str:
    """Return tables as a terminal of some width shows them."""
    console = Console(width=width, file=StringIO())
    with console.capture() as capture:
        console.print(*tables)
    return capture.get()


def _result(sources: dict[str, Traffic], *ranks: int) -> TrainingResult:
    reports = tuple(
        RankReport(rank, rank // 2, (rank % 2, 0, 0), 10**15, 10**15, 1.0, 1.0, 12345.6, 0.985, (), sources)
        for rank in ranks
    )
    epochs = (Epoch(1.0, 1.0, (0.5,), 1.0),)
    return TrainingResult(("a",), (8, 8, 8), (2, 1, 1), 8, 2, (0.4,), epochs, reports, "lru", is_clairvoyant=True)


def _segmentation() -> TrainingResult:
    """Return a result of two epochs and two classes."""
    epochs = (Epoch(2.0, 2.1, (), 1.0, (0.25, 0.5)), Epoch(1.0, 1.5, (), 1.0, (0.5, 0.75)))
    baseline = DiceBaseline((1, 2), (0.05, 0.1), (0.125, 0.25))
    return TrainingResult((), (8, 8, 8), (2, 1, 1), 8, 2, (), epochs, (), dice_baseline=baseline)


def test_dice_stands_above_what_it_is_compared_with() -> None:
    """A row of each epoch with all classes and their mean, then chance and everywhere."""
    lines = _printed(80, epoch_table(_segmentation())).splitlines()
    rows = [line.split() for line in lines]
    assert ["1", "2.0000", "2.1000", "0.2500", "0.5000", "0.3750", "1.0", "s"] in rows
    assert ["2", "1.0000", "1.5000", "0.5000", "0.7500", "0.6250", "1.0", "s"] in rows
    assert ["chance*", "0.0500", "0.1000", "0.0750"] in rows
    assert ["all*", "0.1250", "0.2500", "0.1875"] in rows
    assert max(map(len, lines)) <= 80


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("kind", ["regression", "segmentation"])
def test_learning_is_drawn(kind: str, tmp_path: Path) -> None:
    """The picture of either task is written whole, with more than one colour in it."""
    result = _result({}, 0) if kind == "regression" else _segmentation()
    draw_learning(result, tmp_path / "learning.png")
    assert imread(tmp_path / "learning.png")[..., :3].std() > 0.02
    assert [path.name for path in tmp_path.iterdir()] == ["learning.png"]


@pytest.mark.long
def test_classes_are_drawn_side_by_side(tmp_path: Path) -> None:
    """A plane, and what two sources say of it, of which one knows a class less."""
    plane = np.arange(64, dtype=np.int16).reshape(8, 8)
    maps = {"truth": np.clip(plane // 24, 0, 2), "network": np.zeros_like(plane)}
    draw_classes(plane, maps, tmp_path / "classes.png", title="one volume")
    assert imread(tmp_path / "classes.png")[..., :3].std() > 0.05


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal(width: int) -> None:
    """Nothing is cut, whatever the figures."""
    result = _result({"storage": LARGE, "memory": LARGE, "disk": LARGE, "peer": LARGE}, 2046, 2047)
    text = _printed(width, rank_table(result), source_table(result))
    assert max(map(len, text.splitlines())) <= width
    assert "\u2026" not in text
    assert "orders beyond the epoch at hand were used" in " ".join(text.split())


@pytest.mark.long
def test_a_run_that_was_finished_has_no_figures_of_loading(tmp_path: Path) -> None:
    """Taken up again, it loads nothing: that is said, and no utilisation of 0 %."""
    console = Console(width=80, file=StringIO())
    with console.capture() as capture:
        report(replace(_result({}, 0), policy=None), tmp_path, console=console)
    assert "Nothing was left to do: all 1 epochs were behind." in (text := capture.get())
    assert "Loading, per rank" not in text
    busy = replace(_result({}, 0), policy=None, ranks=(replace(_result({}, 0).ranks[0], steps=((0.0, 0.1, 1.0),)),))
    with console.capture() as capture:
        report(busy, tmp_path, console=console)
    assert "Loading, per rank" in capture.get()


def test_the_table_of_sources_adds_up() -> None:
    """Ranks and their sum; sources that were never asked are left out, and so are figures that there are none of."""
    sources = {
        "storage": Traffic(4, 1, 2**20, 0.5),
        "memory": Traffic(8, 0, 2**21, 0.25, 0.125, 0.25),
        "disk": Traffic(),
    }
    rows = [line.split() for line in _printed(80, source_table(_result(sources, 0, 1))).splitlines()]
    assert ["0", "storage", "4", "1", "1", "MiB", "2", "MiB/s"] in rows
    assert ["memory", "8", "0", "2", "MiB", "8", "MiB/s", "0.125", "s", "0.250", "s"] in rows
    assert ["all", "storage", "8", "2", "2", "MiB", "2", "MiB/s"] in rows
    assert ["memory", "16", "0", "4", "MiB", "8", "MiB/s", "0.250", "s", "0.500", "s"] in rows
    assert not any("disk" in row for row in rows)
