"""A new user's walk with an installed voxload: what README and docs/demo.md show first, and the demo to its pictures.

Commands and scripts are taken out of the pages, so that neither says what does not run. Only counts are smaller.

    python walk.py README.md demo.md
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

FIRST = ("convert", "info", "verify")
"""Commands of README's first tutorial, in the order in which they stand there."""
UNIVERSES = 2
PICTURES = ("blocks.png", "learning.png", "stall.png")


def main() -> None:
    """Raise at the first step that does not do what its page says."""
    readme, demo = (Path(name).read_text(encoding="utf-8") for name in sys.argv[1:])
    _script(_block(demo, "make_universes").replace("count=448", f"count={UNIVERSES}"))
    commands = re.findall(r"^(voxload .*?) *(?:#.*)?$", readme, re.MULTILINE)[: len(FIRST)]
    if [shlex.split(command)[1] for command in commands] != list(FIRST):
        raise SystemExit(f"README begins with {commands}, not with {FIRST}")
    for command in commands:
        _run(shlex.split(command))
    told = _script(_block(readme, "VolumeDataset(") + "print(tuple(x.shape))\n").splitlines()[-1]
    if told != f"({UNIVERSES}, 4, 34, 34, 34)":
        raise SystemExit(f"README's script gives a batch of {told}")
    universe = next(word for word in shlex.split(commands[1]) if word.endswith(".zarr"))
    _run(["voxload", "info", universe, "--plot", "planes.png"])
    _run(["voxload", "demo", "--universes", "16", "--epochs", "1"])
    for picture in (Path("planes.png"), *(Path("demo-report") / name for name in PICTURES)):
        _look_at(picture)
    print(f"README's first commands, docs/demo.md's script and the demo work; {1 + len(PICTURES)} pictures were drawn")


def _block(page: str, word: str) -> str:
    """Return the first script of a page that has a word in it."""
    return next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if word in block)


def _script(text: str) -> str:
    """Run a script as a user does, out of a file, and return what it prints."""
    Path("script.py").write_text(text, encoding="utf-8")
    return _run([sys.executable, "script.py"])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)} ends with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _look_at(path: Path) -> None:
    """Raise unless a picture shows something: matplotlib is there by now."""
    from matplotlib.image import imread  # noqa: PLC0415 - an extra

    deviation = imread(path)[..., :3].std()
    if deviation < 0.05:
        raise SystemExit(f"{path} is one colour: its pixels deviate by {deviation}")


if __name__ == "__main__":
    main()
