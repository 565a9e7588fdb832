"""Each persona's folder: the commands of its README do what it says, a network learns, and a picture is drawn."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from matplotlib.image import imread

from tests.examples.cases import EXAMPLES, PERSONAS
from tests.examples.personas.readme import Step, steps

ROOT = Path(__file__).parents[3]
LOSS = re.compile(r"^epoch (\d+), loss ([\d.]+)", re.MULTILINE)
MOST_LINES = 150


@pytest.fixture
def environ() -> dict[str, str]:
    """Return an environment in which commands are those of this Python, with one thread for each process."""
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    sources = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    words = {"PATH": os.pathsep.join(paths), "PYTHONPATH": os.pathsep.join(sources), "OMP_NUM_THREADS": "1"}
    theirs = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "PMI", "OMPI", "SLURM", "MASTER_", "TORCHELASTIC_")
    outer = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    return {**outer, **words, "COLUMNS": "80"}


@pytest.mark.long
@pytest.mark.parametrize("name", PERSONAS)
def test_the_readmes_commands_do_what_it_says(name: str, tmp_path: Path, environ: dict[str, str]) -> None:
    """In an empty folder that the examples are linked into, as the README asks for."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    listed = list(steps(EXAMPLES / name / "README.md"))
    printed = [step.run(tmp_path, environ) for step in listed]
    for step, found in zip(listed, printed, strict=True):
        assert step.is_shown(found), f"$ {step.command}\n{found}"
    epochs, losses = zip(*LOSS.findall(printed[-1]), strict=True)
    assert [int(epoch) for epoch in epochs] == list(range(len(epochs)))
    assert float(losses[-1]) < PERSONAS[name] * float(losses[0])
    assert imread(tmp_path / f"{name}.png")[..., :3].std() > 0.05


@pytest.mark.parametrize("name", PERSONAS)
def test_programs_are_short(name: str) -> None:
    """They are read from the top to the end."""
    for path in (EXAMPLES / name).glob("*.py"):
        if path.name in {"make_data.py", "train.py"}:
            assert len(path.read_text().splitlines()) <= MOST_LINES, path


def test_every_folder_is_listed() -> None:
    """examples/README.md has a line for each."""
    folders = {path.name for path in EXAMPLES.iterdir() if any(path.glob("*.py")) or any(path.glob("*.sh"))}
    listed = re.findall(r"^\| \[(\w+)/\]\((\w+)/", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert {name for name, _ in listed} == {place for _, place in listed} == folders


@pytest.mark.parametrize(
    ("shown", "printed", "is_shown"),
    [
        (["loss 1...", "done"], "loss 1.25  \ndone\n", True),
        (["loss 1...", "done"], "loss 2.25\ndone\n", False),
        (["first", "...", "last"], "first\n1\n2\nlast\n", True),
        (["first", "...", "last"], "first\nlast\n", True),
        (["first", "last"], "first\n1\nlast\n", False),
        (["a ... b"], "a 1\n2 b\n", False),
        (["| 1...    |"], "| 1.5 s |\n", True),
        (["axb"], "a.b\n", False),
        (["a.b"], "axb\n", False),
        ([], "", True),
        ([], "unasked\n", False),
    ],
)
def test_what_is_printed_is_compared(shown: list[str], printed: str, *, is_shown: bool) -> None:
    """Dots stand for what varies, and for nothing else."""
    assert Step("", tuple(shown)).is_shown(printed) is is_shown


def test_commands_are_found_in_their_order(tmp_path: Path) -> None:
    """Other blocks are left out."""
    text = (
        "# a\n\n```sh\nno\n```\n\n```console\n$ one | two\n 1\n\n 2\n$ three\n```\n\nb\n\n```console\n$ four\n4\n```\n"
    )
    (tmp_path / "README.md").write_text(text)
    found = list(steps(tmp_path / "README.md"))
    assert found == [Step("one | two", (" 1", "", " 2")), Step("three", ()), Step("four", ("4",))]
