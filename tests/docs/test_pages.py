"""Every block of code in the documents is run as it stands there, in the order of the page."""

from __future__ import annotations

import json
import select
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs import interpreter, pages, shell
from tests.docs.buckets import bucket_of
from tests.docs.pages import ROOT, Block, blocks_of, scripts_of
from tests.docs.shell import Shell
from tests.docs.worlds import World
from tests.support import processes, scripts
from tests.support.ranks import run_ranks

PAGES = [page for page in pages.pages() if any(block.is_fast for block in blocks_of(page))]
LONG = {
    "docs/explanation/engine.md",
    "docs/guides/augmentation.md",
    "docs/guides/catalogs.md",
    "docs/guides/choose.md",
    "docs/guides/converting.md",
}
"""Pages that take ten seconds and more of a busy machine: `make test` has none of them."""
SLOW = [page for page in pages.pages() if any(block.is_run and not block.is_fast for block in blocks_of(page))]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return the small data that pages speak of; each is made when a page first needs it."""
    return World(tmp_path_factory.mktemp("world"))


class _Page:
    """A page being read: its folder, and its Python."""

    def __init__(self, page: Path, folder: Path, environ: dict[str, str], stack: ExitStack) -> None:
        self._page = page
        self._folder = folder
        self._stack = stack
        self._environ = environ
        self._shell = Shell(folder, environ, stack)
        self._python: scripts.Script | None = None

    def run(self, block: Block) -> None:
        """Run one block, or save it."""
        if block.file:
            (self._folder / block.file).write_text(block.source)
        elif block.kind == "python":
            self._run_python(block)
        elif block.kind == "console":
            self._shell.run_console(block)
        else:
            self._shell.run(block)

    def run_ranks(self, blocks: list[Block], ranks: int) -> None:
        """Run blocks of one script on several ranks."""
        lines = [str(block.line) for block in blocks]
        ended = run_ranks("tests.docs.interpreter", self._folder, self._page, *lines, ranks=ranks)
        if any(rank.status for rank in ended):
            told = "\n".join(f"{rank.status}\n{rank.out}\n{rank.errors}" for rank in ended)
            pytest.fail(f"{blocks[0]}, on {ranks} ranks: {told}", pytrace=False)

    def _run_python(self, block: Block) -> None:
        if self._python is None:
            started = scripts.started(
                interpreter.SCRIPT,
                self._page,
                imports=interpreter.IMPORTED,
                cwd=self._folder,
                environ=self._environ,
            )
            self._python = self._stack.enter_context(started)
        python = self._python
        python.stdin.write(f"{json.dumps(block.line)}\n")
        python.stdin.flush()
        is_there, _, _ = select.select([python.stdout], [], [], processes.LIMIT)
        answer = python.stdout.readline() if is_there else "it hangs"
        error = json.loads(answer or '"the process ended"') if is_there else answer
        if error:
            pytest.fail(f"{block}\n{error}", pytrace=False)


def run_page(page: Path, blocks: list[Block], world: World, folder: Path) -> None:
    """Run blocks of a page in their order."""
    world.fill(blocks, folder)
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        environ = shell.environ(Path(place))
        if any("s3://" in block.source for block in blocks):
            environ |= stack.enter_context(bucket_of(folder))
        reading = _Page(page, folder, environ, stack)
        for ranks, script in scripts_of(blocks):
            if ranks > 1:
                reading.run_ranks(script, ranks)
            else:
                reading.run(script[0])


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.long if _name(page) in LONG else (), id=_name(page)) for page in PAGES],
)
def test_blocks_run(page: Path, world: World, tmp_path: Path) -> None:
    """All of Python, and the commands that take no time."""
    blocks = [block for block in blocks_of(page) if block.is_fast]
    run_page(page, blocks, world, tmp_path / "page")


@pytest.mark.long
@pytest.mark.timeout(4 * processes.LIMIT)
@pytest.mark.parametrize("page", SLOW, ids=_name)
def test_slow_blocks_run_between_the_others(page: Path, world: World, tmp_path: Path) -> None:
    """Training and measuring included."""
    blocks = [block for block in blocks_of(page) if block.is_run]
    run_page(page, blocks, world, tmp_path / "page")


def test_blocks_that_are_not_run_are_counted() -> None:
    """Each says one of a few reasons; a further one is to be thought about, and written beside the reason."""
    assert dict(pages.reasons()) == pages.REASONS
