"""The table of faults: each raises DataError that names file, chunk and one remedy, as the page of faults says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.damage.faults import CHUNK, CUBE, Row, rows
from tests.support.damage.table import document
from tests.support.damage.volumes import Cube, Form
from voxload.errors import DataError
from voxload.readers import Location

pytestmark = pytest.mark.usefixtures("no_leaks")

DOCUMENT = Path(__file__).parents[2] / "docs" / "explanation" / "faults.md"
ROWS = rows()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for one sound volume of each form."""
    return tmp_path_factory.mktemp("sound")


@pytest.fixture(autouse=True)
def _made_once(monkeypatch: pytest.MonkeyPatch, sound: Path) -> None:
    """Copy hierarchies that are the same for many faults: zarr-python takes longer to write one than we to read it."""
    make = Form.make

    def copy(form: Form, folder: Path, values: Cube, chunk: tuple[int, ...]) -> Location:
        if form.suffix != "zarr" or values is not CUBE or chunk != CHUNK:
            return make(form, folder, values, chunk)
        kept = sound / form.name
        if not kept.exists():
            kept.mkdir()
            make(form, kept, values, chunk)
        shutil.copytree(kept / "x.zarr", folder / "x.zarr")
        return Location(str(folder / "x.zarr"), "")

    monkeypatch.setattr(Form, "make", copy)


@pytest.fixture(scope="module")
def messages() -> dict[str, str]:
    """Collect what the rows printed, for the test of the document, which comes last."""
    return {}


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_fault_names_file_chunk_and_remedy(tmp_path: Path, row: Row, messages: dict[str, str]) -> None:
    """A fault is an error of the data's owner, in one line: which file, which chunk, and one thing to do."""
    kind, message = row.outcome(tmp_path)
    assert kind is DataError
    messages[row.name] = message
    assert "\n" not in message
    assert str(tmp_path / f"x.{row.form.suffix}") in message
    assert row.file in message
    assert row.place is None or f"chunk {row.place}" in message
    what, *remedies = message.split("; ")
    assert len(remedies) == 1
    assert re.match("copy or convert|finish writing|open it again", remedies[0])
    assert "chunk: " not in what
    assert what.count("found") <= 1


@pytest.mark.few_cases(3)
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=() if row.fills or turn % 2 else pytest.mark.long)
        for turn, row in enumerate(row for row in ROWS if not row.is_late)
    ],
)
def test_fill_is_for_what_was_never_written(tmp_path: Path, row: Row) -> None:
    """``missing="fill"`` reads a volume of which a chunk was never written, and no damaged one."""
    assert row.outcome(tmp_path, missing="fill")[0] is (None if row.fills else DataError)


@pytest.mark.long
def test_the_document_is_true(messages: dict[str, str], tmp_path: Path) -> None:
    """The page is what tests/support/damage writes, but for numbers, which follow the versions of libraries."""
    missing = [row for row in ROWS if row.name not in messages]
    for place, row in enumerate(missing):  # those of other workers, or not selected
        folder = tmp_path / str(place)
        folder.mkdir()
        messages[row.name] = row.outcome(folder)[1]
    fresh = document([(row, messages[row.name]) for row in ROWS])
    assert _numberless(DOCUMENT.read_text()) == _numberless(fresh), "run: python -m tests.support.damage --write"


def _numberless(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|-?\d+", "N", text)
