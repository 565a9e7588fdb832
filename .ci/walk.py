"""A new user's walk with an installed voxload: the first tutorial, from its first command to its pictures.

Scripts and commands are taken out of the page, and what they print is compared with what the page shows: a line of dots
stands for lines that vary, dots in a line for what varies there.

    python walk.py first.md
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

PICTURES = ("slices.png", "first/learning.png")
"""What the page has drawn."""


def main() -> None:
    """Raise at the first step that does not do what the page says."""
    page = Path(sys.argv[1]).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    kinds = [kind for kind, _ in blocks]
    if not {"python", "console"} <= set(kinds) <= {"sh", "python", "console", "text"}:
        raise SystemExit(f"the tutorial has blocks of {sorted(set(kinds))}")
    printed, steps = "", 0
    for kind, text in blocks:
        if kind == "sh" and not text.startswith("pip install"):  # which is done already
            raise SystemExit(f"a command whose output the tutorial does not show:\n{text}")
        if kind == "python":
            Path("script.py").write_text(text, encoding="utf-8")
            printed, steps = _run([sys.executable, "script.py"]), steps + 1
        elif kind == "console":
            for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, shown = step.partition("\n")
                _compare(command, shown, _run(shlex.split(command)))
                steps += 1
        elif kind == "text":  # of the script above it
            _compare("script.py", text, printed)
    for picture in PICTURES:
        _look_at(Path(picture))
    print(f"all {steps} steps of the first tutorial do what it says; {len(PICTURES)} pictures were drawn")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)} ends with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _compare(command: str, shown: str, printed: str) -> None:
    """Raise where something else was printed than is shown."""
    lines = ["(?:.*\n)*" if line == "..." else _line(line) + " *\n" for line in shown.splitlines()]
    if re.fullmatch("".join(lines), printed) is None:
        raise SystemExit(f"{command} prints\n{printed}\nand the tutorial says\n{shown}")


def _line(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("..."))


def _look_at(path: Path) -> None:
    """Raise unless a picture shows something: matplotlib is there by now."""
    from matplotlib.image import imread  # noqa: PLC0415 - an extra

    deviation = imread(path)[..., :3].std()
    if deviation < 0.05:
        raise SystemExit(f"{path} is one colour: its pixels deviate by {deviation}")


if __name__ == "__main__":
    main()
