"""``voxload train``: what its options refuse, and its tables in narrow and wide terminals."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from voxload.cli.main import run
from voxload.cli.tables import rank_table, source_table
from voxload.prefetch.meter import Traffic
from voxload.training.result import Epoch, RankReport, TrainingResult

WRONG = {
    "a size that is none": (["--memory", "8G"], "write for example 512MiB"),
    "a folder without its size": (["--disk", "tier"], "expected a folder and its size, or neither"),
    "a size without its folder": (["--disk-size", "1GiB"], "expected a folder and its size, or neither"),
    "no such policy": (["--policy", "magic"], "cache policy: found 'magic', expected one of ['clairvoyant'"),
    "no such way to peers": (["--peers", "pigeons"], "cache peers: found 'pigeons'"),
    "no such codec": (["--memory", "1GiB", "--codec", "zip"], "cache codec: found 'zip'"),
    "no folder for figures": (["--prometheus", "none/voxload.prom"], "--prometheus: found no folder none"),
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


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal(width: int) -> None:
    """Nothing is cut, whatever the figures."""
    result = _result({"storage": LARGE, "memory": LARGE, "disk": LARGE, "peer": LARGE}, 2046, 2047)
    text = _printed(width, rank_table(result), source_table(result))
    assert max(map(len, text.splitlines())) <= width
    assert "\u2026" not in text
    assert "orders beyond the epoch at hand were used" in " ".join(text.split())


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
