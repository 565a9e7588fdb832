"""The memory that a whole conversion takes, measured from outside the converter."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np

from tests.support import processes
from voxload.convert import ConvertOptions, Headerless, Hints, convert
from voxload.units import parse_bytes

EXTENT = 320
ALLOWED = "380MiB"
LIBRARY_FILES = 150 * 2**20
"""What is mapped of libraries' files. The kernel maps more around it as it pleases, 227 MiB after an installation."""
CHILD = """
import sys
from pathlib import Path
from voxload.convert import ConvertOptions, Headerless, Hints, convert
from voxload.units import parse_bytes
src, dst, allowed, extent = sys.argv[1:]
facts = Headerless((int(extent),) * 3 + (4,), "<i2")
options = ConvertOptions(hints=Hints("DHWC", facts), max_memory=parse_bytes(allowed), checksums=True)
convert(src, dst, options=options)
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
mapped, name = 0, ""
for line in Path("/proc/self/smaps").read_text().splitlines():
    kind, *words = line.split()
    if not kind.endswith(":"):
        name = words[-1]
    elif kind == "Rss:" and ".so" in name:
        mapped += int(words[0])
print(peak.split()[1], mapped)
"""


def test_peak_memory_stays_within_the_budget(tmp_path: Path) -> None:
    """Incompressible voxels, the worst case, of a cube that would not fit, stay below the budget, with checksums."""
    _compile(tmp_path)
    block = np.random.default_rng(0).bytes(2 * 4 * EXTENT**2)
    with (tmp_path / "noise.raw").open("wb") as file:
        for _ in range(EXTENT):
            file.write(block)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "noise.raw"), str(tmp_path / "out"), ALLOWED, str(EXTENT)]
    try:
        peak = _peak_bytes(command)
    finally:
        (tmp_path / "noise.raw").unlink()
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert peak < parse_bytes(ALLOWED)


def _compile(folder: Path) -> None:
    """Convert a small cube of the same kind, so that the machine has the kernels: to compile takes memory besides."""
    (folder / "small").mkdir()
    (folder / "small" / "cube.raw").write_bytes(bytes(2 * 4 * 32**3))
    options = ConvertOptions(hints=Hints("DHWC", Headerless((32, 32, 32, 4), "<i2")), checksums=True)
    convert(folder / "small" / "cube.raw", folder / "compiled", options=options)


def _peak_bytes(command: list[str]) -> int:
    done = processes.run(command, check=True, capture_output=True, text=True)
    # VmHWM and not getrusage: the latter's peak begins with that of the process that started the child.
    peak, of_libraries = (int(word) * 1024 for word in done.stdout.split())
    return peak - max(of_libraries - LIBRARY_FILES, 0)
