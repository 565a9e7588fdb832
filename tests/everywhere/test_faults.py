"""Every fault through every door: readers, loader, convert, info, verify and bench answer with the same error."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

from tests.support import scripts
from tests.support.damage.faults import rows

FAULTS = [row.name for row in rows() if not row.is_late]
"""Those that are there before anything opens the volume; what changes under a reader is the readers' own test."""
QUICK = FAULTS[::18]
DOORS = "tests.everywhere.doors"
Said = Mapping[str, tuple[str, str]]


def _said(faults: Sequence[str]) -> dict[str, Said]:
    """Return what each door said of each fault; a fault that ends the process says nothing, and the others go on."""
    found: defaultdict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    left = list(faults)
    while left:
        words = f"import warnings; from {DOORS} import main; warnings.simplefilter('ignore'); main()"
        ran = scripts.run(words, *left, imports=[DOORS], check=False)
        lines = [json.loads(line) for line in ran.stdout.splitlines()]
        assert lines, ran.stderr
        for line in lines:
            if "said" in line:
                found[line["fault"]][line["door"]] = (line["kind"], line["said"])
        if ran.returncode == 0:
            break
        last = lines[-1]
        found[last["fault"]][last["door"]] = (f"process ended with {ran.returncode}", ran.stderr[-500:])
        left = left[left.index(last["fault"]) + 1 :]
    return dict(found)


def _told(message: str) -> tuple[str, ...]:
    """Return what each door has to tell of what a reader tells: which chunk or shard; without one, what was found."""
    place = re.search(r"(?:chunk|shard) (\(\d+, \d+, \d+\))", message)
    what = message.rpartition("; ")[0]
    return ("x.", place[1] if place else what[what.index(": found ") :].partition(", expected")[0])


def _check(fault: str, said: Said) -> list[str]:
    """Return in words where the doors differ."""
    opened, (kind, message) = said["open"], said["reader"]
    wrong = [] if kind == "DataError" else [f"reader: {kind} {message}"]
    for door in ("loader", "convert", "verify", "convert command", "bench", "info"):
        found, words = said.get(door, ("never asked", ""))
        if door == "info" and not opened[0] and found == "0":  # it reads metadata, and they are whole
            continue
        if found not in ("DataError", "VoxloadError", "1") or not all(part in words for part in _told(message)):
            wrong.append(f"{door}: {found} {words}")
    return [f"{fault} ({message}): {line}" for line in wrong]


@pytest.mark.parametrize("faults", [QUICK, pytest.param(FAULTS, marks=pytest.mark.long)], ids=["quick", "all"])
def test_every_door_says_the_same(faults: list[str]) -> None:
    """No door stores, delivers or passes what another one refuses, and none ends the process."""
    said = _said(faults)
    assert [fault for fault in faults if fault not in said] == []
    assert [line for fault, found in said.items() for line in _check(fault, found)] == []
