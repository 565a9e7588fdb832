"""What the tests of pages themselves would miss: blocks that fail, that lie, and that are left out without a word."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs import shell
from tests.docs.pages import APART, ROOT, Block, PageError, blocks_of, pages, scripts_of
from tests.docs.shell import Shell
from tests.docs.test_pages import run_page
from tests.docs.worlds import World
from tests.support import processes

PAGE = """# A page

```python
number = 6
```

<!-- slow -->
```sh title="a title"
exit 3
```

1. In a list:

    ```python
    assert number * 7 == ANSWER
    ```

<!-- not run: needs a GPU -->
```console
$ nvidia-smi
```
"""


def _page(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


def _run(folder: Path, text: str) -> None:
    blocks = [block for block in blocks_of(_page(folder, text)) if block.is_fast]
    run_page(blocks[0].page, blocks, World(folder / "world"), folder / "page")


@pytest.mark.parametrize("name", APART)
def test_what_is_run_elsewhere_is_run_there(name: str) -> None:
    """The file that runs it is there, and speaks of it; no other page is left out."""
    where = ROOT / APART[name]
    assert (ROOT / name).exists()
    assert Path(name).name in where.read_text(encoding="utf-8") or name == "examples"


def test_blocks_are_found_in_their_order(tmp_path: Path) -> None:
    """With their lines, in lists too, and with what is said of them."""
    blocks = blocks_of(_page(tmp_path, PAGE))
    assert [(block.kind, block.line) for block in blocks] == [
        ("python", 3),
        ("shell", 8),
        ("python", 14),
        ("console", 19),
    ]
    assert [block.is_run for block in blocks] == [True, True, True, False]
    assert [block.is_fast for block in blocks] == [True, False, True, False]
    assert blocks[2].source == "assert number * 7 == ANSWER\n"


def test_all_documents_are_looked_at() -> None:
    """New ones too: they are found by their place."""
    found = {page.name for page in pages()}
    assert {"README.md", "CONTRIBUTING.md", "engine.md", "loader.md", "serve.md"} <= found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```\nvoxload info x\n```\n", "language ''"),
        ("```pyhton\n1\n```\n", "language 'pyhton'"),
        ("```{.python}\n1\n```\n", "language '{.python}'"),
        ("<!-- not run: it fails -->\n```sh\nfalse\n```\n", "reason 'it fails'"),
        ("<!-- not run: needs a GPU -->\n\n```sh\nfalse\n```\n", "directly below"),
        ("<!-- slow -->\n```text\na\n```\n", "only shown"),
        ('```python title="train.py"\n1\n```\n', "no block uses"),
    ],
)
def test_what_is_not_understood_is_no_passed_test(tmp_path: Path, text: str, message: str) -> None:
    """A misspelt language or reason would leave a block out."""
    with pytest.raises(PageError, match=message):
        blocks_of(_page(tmp_path, text))


def test_a_block_that_raises_is_named_with_its_line(tmp_path: Path) -> None:
    """Names of the blocks before are there, and no others."""
    with pytest.raises(pytest.fail.Exception, match=r"(?s)page.md:14\n.*line 15.*NameError: name 'ANSWER'") as caught:
        _run(tmp_path, PAGE)
    assert "'number'" not in str(caught.value)
    (tmp_path / "right").mkdir()
    _run(tmp_path / "right", PAGE.replace("ANSWER", "42"))


def test_a_script_of_ranks_that_raises_is_named(tmp_path: Path) -> None:
    """All blocks up to a command, or to another number of ranks, are one script (of tests.support.ranks)."""
    text = "<!-- ranks: 2 -->\n```python\nimport os\n```\n\n```python\nassert os.environ['RANK'] == '0'\n```\n"
    with pytest.raises(pytest.fail.Exception, match=r"(?s)page.md:2, on 2 ranks.*line 7.*AssertionError"):
        _run(tmp_path, text)


def test_ranks_part_a_page_into_scripts(tmp_path: Path) -> None:
    """One process goes on behind them."""
    blocks = "```python\n1\n```\n", "```sh\ntrue\n```\n"
    text = f"{blocks[0]}<!-- ranks: 2 -->\n{blocks[0]}{blocks[0]}{blocks[1]}{blocks[0]}<!-- ranks: 3 -->\n{blocks[0]}"
    text += f"<!-- ranks: 1 -->\n{blocks[0]}"
    scripts = [(ranks, len(script)) for ranks, script in scripts_of(blocks_of(_page(tmp_path, text)))]
    assert scripts == [(1, 1), (2, 2), (1, 1), (1, 1), (3, 1), (1, 1)]


@pytest.mark.parametrize("command", ["voxload info nothing.h5", "false", "true | false | true", "true; (exit 7); true"])
def test_a_command_that_fails_is_told(tmp_path: Path, command: str) -> None:
    """Each command of a block, in pipes too; voxload's own, which no shell runs, and others."""
    with pytest.raises(pytest.fail.Exception, match=r"page.md:1: status [1-9]"):
        _run(tmp_path, f"```sh\ntrue\n{command}\n```\n")


def _console(folder: Path, source: str) -> None:
    with ExitStack() as stack:
        block = Block(folder / "page.md", 1, "console", source, {}, "")
        Shell(folder, shell.environ(folder), stack).run_console(block)


def test_what_a_console_shows_is_compared(tmp_path: Path) -> None:
    """Dots stand for anything in a line and for lines; a command may go on on a second line, and show nothing."""
    _console(tmp_path, "$ seq 1 \\\n    9\n1\n2\n...\n9\n$ echo took 3.4 s\ntook ... s\n$ echo quiet\n")
    with pytest.raises(pytest.fail.Exception, match=r"took 3\.4 s"):
        _console(tmp_path, "$ echo took 3.4 s\ntook ... h\n")
    with pytest.raises(pytest.fail.Exception, match="before the first command"):
        _console(tmp_path, "took 3.4 s\n$ true\n")


def test_services_of_a_page_last_until_its_end(tmp_path: Path) -> None:
    """What a block leaves in the background the next ones use."""
    text = "```sh\nsleep 1000 & echo $! > pid\n```\n\n```sh\nkill -0 $(cat pid)\n```\n"
    _run(tmp_path, text)
    assert int((tmp_path / "page" / "pid").read_text()) not in processes.descendants()
