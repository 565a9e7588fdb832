"""Claim: help takes less than 0.4 s, a completion less than 0.3 s and info of a file less than 0.8 s.

Each call is a process of its own, and all take turns. Of each the median is printed: the seconds that pass, and those
that a core is busy with it, which say more where others use the cores. Beside them are Python alone, and imports of
libraries, for scale. Modules are compiled and in the page cache: one round before the others does not count.

    python bench/startup.py [--rounds 15] [--json]
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import h5py
import nibabel
import numpy as np
import zarr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.harness.script import ROOT, finish, parser
from tests.support import processes
from voxload.benchmark.measure.turns import in_turns

SIZE = 64
"""Voxels along each axis of what info is asked about."""
HELP, COMPLETION, INFO = 0.4, 0.3, 0.8
"""Seconds that a call may take."""


@dataclass(frozen=True, slots=True)
class Call:
    """A process."""

    words: tuple[str, ...]
    """What Python is given."""
    wanted: float | None = None
    """Seconds that it may take."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables of the environment, besides this process's."""

    @classmethod
    def program(cls, *words: str, wanted: float) -> Call:
        """Return a call of the program."""
        return cls(("-m", "voxload", *words), wanted)

    @classmethod
    def completion(cls, shell: str, typed: str) -> Call:
        """Return a shell's request, for what may come behind what was typed."""
        asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - (not typed.endswith(" ")))}
        asked = asked if shell == "bash" else {"_TYPER_COMPLETE_ARGS": typed}
        asked |= {"_VOXLOAD_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        return cls(("-m", "voxload"), COMPLETION, asked)

    def run(self) -> tuple[float, float]:
        """Return the seconds that passed, and those that a core was busy."""
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        processes.run([sys.executable, *self.words], env=inherited | dict(self.environ), cwd=ROOT, capture_output=True)
        passed, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        return passed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@dataclass(frozen=True, slots=True)
class Row:
    """One call; of times the median."""

    call: str
    seconds: float
    busy_seconds: float
    wanted: float | None


def calls(folder: Path) -> dict[str, Call]:
    """Write what info is asked about, and return all calls by name."""
    cube = np.random.default_rng(0).integers(0, 900, (SIZE,) * 3).astype(np.int16)
    np.save(folder / "cube.npy", cube)
    with h5py.File(folder / "cube.h5", "w") as file:
        file.create_dataset("volume", data=cube, chunks=(SIZE // 2,) * 3, compression="gzip")
    zarr.create_array(folder / "cube.zarr", data=cube, chunks=(SIZE // 2,) * 3)
    nibabel.save(nibabel.Nifti1Image(cube, np.eye(4)), folder / "cube.nii")  # type: ignore[no-untyped-call]
    found = {f"import {name}": Call(("-c", f"import {name}")) for name in ("typer", "h5py", "zarr", "voxload")}
    helps = (("--help",), *((name, "--help") for name in ("info", "convert", "train", "plan", "bench")))
    found |= {f"voxload {' '.join(words)}": Call.program(*words, wanted=HELP) for words in helps}
    for shell in ("bash", "zsh", "fish"):
        found |= {f"{shell}: {typed}": Call.completion(shell, typed) for typed in ("voxload ", "voxload train --")}
    for name in ("cube.npy", "cube.h5", "cube.zarr", "cube.nii"):
        found[f"voxload info {name}"] = Call.program("info", str(folder / name), wanted=INFO)
    return {"pass": Call(("-c", "pass"))} | found


def main() -> int:
    """Print one line a call."""
    words = parser(__doc__, rounds=15).parse_args()
    with tempfile.TemporaryDirectory() as place:
        known = calls(Path(place))
        for call in known.values():
            call.run()
        turns = in_turns(tuple(known), words.rounds, lambda name: known[name].run())
    print(f"others used {median(turns.others):.1f} cores", file=sys.stderr)
    passed, busy = turns.figures(lambda found: found[0]), turns.figures(lambda found: found[1])
    rows = [Row(name, passed.median(name), busy.median(name), call.wanted) for name, call in known.items()]
    return finish(words, rows, lambda row: row.wanted is None or row.seconds <= row.wanted)


if __name__ == "__main__":
    sys.exit(main())
