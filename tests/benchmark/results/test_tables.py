"""Tables of a result, and its rows for a CSV file."""

from __future__ import annotations

import csv
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmark.documents import LABELS, Recipe, document
from voxload.benchmark.measure.document import Document
from voxload.benchmark.results.csv_rows import CSV_HEADER, csv_rows, write_csv
from voxload.benchmark.results.tables import byte_table, figure_table, result_tables, source_table


def _text(found: Document) -> str:
    stream = StringIO()
    Console(file=stream, width=80).print(result_tables(found))
    return stream.getvalue()


def _rows(table: Table) -> dict[str, list[str]]:
    """Return the cells of each row by its name."""
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    return {name: list(cells) for name, *cells in zip(*columns, strict=True)}


def test_labels_come_before_any_figure() -> None:
    """What a reader must know stands on top, word for word, brackets too."""
    text = _text(document(Recipe(labels=(*LABELS, "seed [0] is known"))))
    first_figure = text.index("throughput")
    assert all(0 <= text.index(label) < first_figure for label in (*LABELS, "seed [0] is known"))


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(repetitions=1, compute=0, tells=False), Recipe(steps=1)])
def test_tables_fit_a_terminal(recipe: Recipe) -> None:
    """No line is longer than 80 columns and no cell is cut, whatever the result lacks."""
    text = _text(document(replace(recipe, labels=())))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "nan" not in text


def test_several_runs_have_an_interval_and_one_has_none() -> None:
    """The interval of five runs is from the lowest to the highest, and its confidence is said."""
    several, one = document(Recipe()), document(Recipe(repetitions=1))
    speeds = sorted(several.values("samples_per_second"))
    cells = _rows(figure_table(several))["throughput"]
    assert cells == ["samples/s", *(f"{value:.1f}" for value in (speeds[2], speeds[0], speeds[4]))]
    assert "94%" in str(figure_table(several).caption)
    assert _rows(figure_table(one))["throughput"] == ["samples/s", f"{one.median('samples_per_second'):.1f}"]
    assert "One run: no interval" in str(figure_table(one).caption)


def test_figures_that_a_result_lacks_are_left_out() -> None:
    """AU needs computing."""
    assert "AU" in _rows(figure_table(document(Recipe())))
    assert "AU" not in _rows(figure_table(document(Recipe(compute=0))))


def test_bytes_stand_side_by_side_in_both_units() -> None:
    """Delivered, asked, returned and from devices; of all ranks, a node and a rank, which differ by their numbers."""
    found = document(Recipe(ranks=4, nodes=2, repetitions=1))
    figures = found.runs[0].figures
    rows = _rows(byte_table(found))
    names = ("delivered_bytes", "asked_bytes", "read_bytes", "device_bytes")
    for place, name in enumerate(names):
        rate = figures[name] / figures["seconds"]
        expected = {
            "GB": figures[name] / 1e9,
            "GiB": figures[name] / 2**30,
            "over delivered": figures[name] / figures["delivered_bytes"],
            "GB/s, all ranks": rate / 1e9,
            "GiB/s, all ranks": rate / 2**30,
            "GB/s, a node": rate / 1e9 / 2,
            "GB/s, a rank": rate / 1e9 / 4,
        }
        for row, value in expected.items():
            assert float(rows[row][place]) == pytest.approx(value, rel=6e-3), (row, name)


def test_what_a_loader_does_not_count_is_a_dash() -> None:
    """Never a zero, which would be a figure."""
    found = document(Recipe(tells=False))
    rows = _rows(byte_table(found))
    assert {cells[1] for cells in rows.values()} == {"-"}
    assert "-" not in {cells[2] for cells in rows.values()}
    assert "Blocks by where" not in _text(found)


def test_shares_of_tiers_add_up() -> None:
    """The four tiers are the whole."""
    rows = _rows(source_table(document(Recipe())))
    assert list(rows) == ["storage", "memory", "disk", "peer"]
    assert sum(float(cells[2].rstrip("%")) for cells in rows.values()) == pytest.approx(100, abs=0.3)


def test_a_row_of_the_file_is_a_run(tmp_path: Path) -> None:
    """Cells under the header's words are the figures in whole, and empty where they are unknown."""
    first, second = document(Recipe()), document(Recipe(repetitions=2, tells=False, labels=("a, b", "c")))
    write_csv((first, second), tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 7
    assert tuple(rows[0]) == CSV_HEADER
    assert all(len(row) == len(CSV_HEADER) for found in (first, second) for row in csv_rows(found))
    figures = first.runs[1].figures
    assert (rows[1]["run"], rows[1]["seed"], rows[1]["ranks"], rows[1]["nodes"]) == ("2", "1", "4", "2")
    assert float(rows[1]["samples_per_second"]) == figures["samples_per_second"]
    assert int(rows[1]["delivered_bytes"]) == figures["delivered_bytes"]
    assert float(rows[1]["stall_p99_seconds"]) == figures["stall"]["p99"]
    assert int(rows[1]["from_peer_bytes"]) == figures["sources"]["peer"]
    assert (rows[6]["asked_bytes"], rows[6]["from_peer_bytes"], rows[6]["labels"]) == ("", "", "a, b; c")
