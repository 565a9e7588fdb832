"""Pages: the blocks of code in the Markdown files of this repository, and what is said of each.

Sybil finds them. A comment of HTML directly above a block, which no reader sees, says what is particular to it:

    <!-- not run: needs a GPU -->       one of REASONS; the block is counted
    <!-- slow -->                       `make test-long` runs it, and `make test` does not
    <!-- ranks: 4 -->                   this block and the Python that follows are run by so many processes, as torchrun
                                        starts them; `ranks: 1` goes on with what one process has run

A block with a title that is a file's name is saved under that name; some other block uses it.

    python -m tests.docs.pages          prints how many blocks are run, when, and why others are not
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sybil import Document, Region
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, RawFencedCodeBlockLexer

ROOT = Path(__file__).parents[2]
_FOLDERS = ("deploy", "docs")
_FILES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
KINDS = {"python": "python", "py": "python", "sh": "shell", "bash": "shell", "console": "console"}
"""Languages of blocks that are run, and how."""
SHOWN = frozenset({"text", "yaml", "toml", "json", "ini", "mermaid"})
"""Languages of blocks that show something and are not run."""
REASONS = {
    "installs software": 4,
    "measures one machine": 2,
    "needs data of yours": 1,
    "needs a GPU": 1,
    "needs another program": 2,
    "needs root": 1,
    "needs several nodes": 5,
    "needs Slurm": 2,
    "needs a larger machine": 1,
    "takes many minutes": 3,
}
"""Why a block is not run, and how many blocks there are of which this is said."""
APART = {
    "docs/guides/clusters.md": "tests/deploy/test_training_jobs.py",
    "docs/guides/moving.md": "tests/docs/test_moving.py",
    "docs/guides/trouble.md": "tests/docs/test_trouble.py",
    "docs/tutorials/first.md": ".ci/walk.py",
    "examples": "tests/examples/personas/test_readmes.py",
}
"""Pages and folders whose blocks are run elsewhere, and where: as what they speak of, or with an installed voxload."""
FENCE = re.compile(r"[ \t]*(?P<language>[^\s`]*)(?P<rest>[^\n`]*)\n")
"""What stands behind the backquotes."""
_TITLE = re.compile(r'title="([\w-]+\.\w+)"')
_MARKS = r"not run|slow|ranks"


class PageError(Exception):
    """A page has a block that cannot be understood."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    """Of the fence, from 1 on."""
    kind: str
    """"python", "shell", "console" or "shown"."""
    source: str
    marks: dict[str, str]
    """What the comments above it say: the argument by the mark."""
    file: str
    """Name that it is saved under; empty where it is not."""

    @property
    def is_run(self) -> bool:
        """Whether it is run at all, or saved for others that are."""
        return (self.kind != "shown" or bool(self.file)) and "not run" not in self.marks

    @property
    def is_fast(self) -> bool:
        """Whether `make test` runs it."""
        return self.is_run and "slow" not in self.marks

    def __str__(self) -> str:
        """Say where it is."""
        return f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page}:{self.line}"


def pages() -> list[Path]:
    """Return the Markdown files whose blocks are run, new ones too."""
    found = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.md")]
    apart = {ROOT / name for name in APART}
    return sorted(path for path in found + [ROOT / name for name in _FILES] if path not in apart)


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in their order; PageError where one has no known language or an unknown mark."""
    text = page.read_text(encoding="utf-8")
    document = Document(text, str(page))
    above: dict[int, dict[str, str]] = {}
    for place, mark, argument in _marks(document):
        above.setdefault(place, {})[mark] = argument
    found = []
    for region in _fences(document):
        line = text.count("\n", 0, region.start) + 1
        found.append(_block(page, line, region, above.pop(line, {})))
    if above:
        raise PageError(f"{page}:{min(above)}: found a comment for a block, expected the block directly below it")
    for block in found:
        if block.file and not any(block.file in other.source for other in found if other.is_run):
            raise PageError(f"{page}:{block.line}: found a file {block.file!r} that no block uses, expected a use")
    return found


def _fences(document: Document) -> Iterable[Region]:
    return RawFencedCodeBlockLexer(FENCE)(document)


def _marks(document: Document) -> Iterator[tuple[int, str, str]]:
    """Yield the line of the block that a comment is above of, its mark and its argument."""
    lines = document.text.splitlines()
    for region in DirectiveInHTMLCommentLexer(_MARKS)(document):
        line = document.text.count("\n", 0, region.start) + 1
        while line < len(lines) and lines[line].lstrip().startswith("<!--"):
            line += 1
        yield line + 1, region.lexemes["directive"], region.lexemes["arguments"].strip()


def _block(page: Path, line: int, region: Region, marks: dict[str, str]) -> Block:
    language, where = region.lexemes["language"], f"{page}:{line}"
    if language not in KINDS and language not in SHOWN:
        known = ", ".join(sorted({*KINDS, *SHOWN}))
        raise PageError(f"{where}: found a block of the language {language!r}, expected one of {known}")
    kind = KINDS.get(language, "shown")
    reason = marks.get("not run")
    if reason is not None and reason not in REASONS:
        raise PageError(f"{where}: found the reason {reason!r}, expected one of {', '.join(REASONS)}")
    if kind == "shown" and marks and not _TITLE.search(region.lexemes["rest"]):
        raise PageError(f"{where}: found a mark above a block that is only shown, expected none")
    named = _TITLE.search(region.lexemes["rest"])
    return Block(page, line, kind, region.lexemes["source"], marks, named[1] if named else "")


def scripts_of(blocks: Iterable[Block]) -> Iterator[tuple[int, list[Block]]]:
    """Part the blocks of a page: what several ranks run together, and how many, and all other blocks one by one."""
    ranks, script = 1, list[Block]()
    for block in blocks:
        if script and (block.kind != "python" or "ranks" in block.marks):
            yield ranks, script
            ranks, script = 1, []
        if block.kind == "python":
            ranks = int(block.marks.get("ranks", ranks))
        if ranks > 1 and not block.file:
            script.append(block)
        else:
            yield 1, [block]
    if script:
        yield ranks, script


def reasons() -> Counter[str]:
    """Count the blocks that are not run by why."""
    every = [block for page in pages() for block in blocks_of(page)]
    return Counter(block.marks["not run"] for block in every if "not run" in block.marks)


def main() -> None:
    """Print a line a page, and the sums."""
    sums = Counter[str]()
    for page in pages():
        blocks = [block for block in blocks_of(page) if block.kind != "shown"]
        counts = Counter(
            block.kind if block.is_fast else "slow" if block.is_run else block.marks["not run"] for block in blocks
        )
        sums += counts
        sys.stdout.write(f"{page.relative_to(ROOT)}: {dict(counts)}\n")
    sys.stdout.write(f"all: {dict(sums)}\n")


if __name__ == "__main__":
    main()
