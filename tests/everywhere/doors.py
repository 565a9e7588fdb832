"""What each door of voxload says of one damaged volume: readers, the loader, and the commands, as JSON lines.

    python -m tests.everywhere.doors FAULT [FAULT ...]

A process of its own: some faults ended the interpreter. A line says which fault and door comes next, another one what
came out; what is missing at the end is where it ended.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.damage.faults import CHUNK, CUBE, Row, read, rows
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog, Entry
from voxload.cli.main import run
from voxload.convert import ConvertOptions, Hints, convert
from voxload.data.dataset import VolumeDataset
from voxload.errors import VoxloadError
from voxload.loader.dataloader import DataLoader
from voxload.readers import Location, open_reader
from voxload.verification import verify

Said = tuple[str, str]
"""Class of the error, or the exit status of a command, and what was said; no class where there was no error."""


def _raised(call: Callable[[], object]) -> Said:
    try:
        call()
    except VoxloadError as error:
        return type(error).__name__, str(error)
    return "", ""


def _command(*words: str) -> Said:
    """Run a command in this process; return its status and what it printed as an error."""
    said, printed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        status = run(list(words))
    return str(status), said.getvalue() or printed.getvalue()


def _opened(location: Location) -> None:
    open_reader(location).close()


def _read(location: Location) -> None:
    with contextlib.closing(open_reader(location)) as reader:
        read(reader)


def _loaded(location: Location) -> None:
    data = VolumeDataset([location.path], fields={"x": location.dataset} if location.dataset else None)
    with contextlib.closing(DataLoader(data, batch_size=1)) as loader:
        for _ in loader:
            pass


def _verified(location: Location) -> None:
    """Verify a catalogue that knows the volume; raise its first fault as an error."""
    path = Path(location.path)
    entry = Entry(
        sample="x", path=path.name, dataset=location.dataset, shape=CUBE.shape, dtype="<i2", axes="DHW",
        stored_bytes=CUBE.nbytes,
    )  # fmt: skip
    catalog = path.parent / CATALOG_NAME
    Catalog.from_entries([entry], path.parent).write(catalog)
    report = verify(catalog)
    if report.faults:
        fault = report.faults[0]
        chunk = "" if fault.chunk is None else f", chunk {fault.chunk}"
        raise VoxloadError(f"{fault.file}:{fault.dataset}{chunk}: {fault.error}")


DOORS: dict[str, Callable[[Location, Path], Said]] = {
    "open": lambda location, _: _raised(lambda: _opened(location)),
    "reader": lambda location, _: _raised(lambda: _read(location)),
    "loader": lambda location, _: _raised(lambda: _loaded(location)),
    "convert": lambda location, folder: _raised(
        lambda: convert(location.path, folder / "out", options=ConvertOptions(hints=Hints("DHW")))
    ),
    "info": lambda location, _: _command("info", location.path, "--axes", "DHW"),
    "convert command": lambda location, folder: _command(
        "convert", location.path, str(folder / "cli"), "--axes", "DHW"
    ),
    "verify": lambda location, _: _raised(lambda: _verified(location)),
    "bench": lambda location, _: _command("bench", "run", location.path, "--axes", "DHW", "--threads", "1"),
}
"""By name: what is done with a damaged volume, and an empty folder."""


def outcomes(row: Row, tell: Callable[[Any], None]) -> None:
    """Break a volume and give it to every door, each with a fresh copy, telling what each says."""
    for name, door in DOORS.items():
        tell({"fault": row.name, "door": name})
        with tempfile.TemporaryDirectory() as folder:
            raw = Path(folder, "raw")
            raw.mkdir()
            location = row.form.make(raw, CUBE, CHUNK)
            row.change(Path(location.path))
            kind, said = door(location, Path(folder))
        tell({"fault": row.name, "door": name, "kind": kind, "said": said.replace(f"{folder}/raw/", "")})


def main() -> None:
    """Go through the faults that are named."""
    wanted = set(sys.argv[1:])

    def tell(line: Any) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    for row in rows():
        if row.name in wanted and not row.is_late:
            outcomes(row, tell)


if __name__ == "__main__":
    main()
