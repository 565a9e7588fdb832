"""Source pages: files of the repository that pages link to, shown in the site, so that no claim points outside of it.

mkdocs calls `on_files` and `on_page_markdown`. A link to ``../../bench/loader.py``, or the code span
``bench/loader.py``, leads to a page that shows that file; one to a folder leads to a list of its files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<=\]\()(?P<link>[^)\s]+)(?=\))")
_SCRIPT = re.compile(r"(?<!\[)`(?P<command>(?:python )?(?P<path>bench/[\w/]+\.py)(?P<rest>[^`\n]*))`(?!\])")
_LANGUAGES = {".py": "python", ".sh": "bash", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".lua": "lua"}
_SHOWN = 400_000
"""Most characters of a file that is shown."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file and folder of the repository that a page links to."""
    root = _root(config)
    wanted: set[str] = set()
    for file in files.documentation_pages():
        wanted.update(path for _, path in _outside(file.content_string, file.src_uri, config))
        wanted.update(match["path"] for match in _SCRIPT.finditer(file.content_string))
    for path in sorted(wanted):
        found = root / path
        if found.is_dir():
            inside = sorted(one for one in found.iterdir() if one.is_file() and not one.name.startswith("."))
            wanted |= {str(one.relative_to(root)) for one in inside}
    for path in sorted(wanted):
        if (root / path).exists():  # else mkdocs tells of the link
            text, apart = _content(root, path), InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, _page_of(path), content=text, inclusion=apart))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links and code spans lead to the pages of what they name."""
    here = page.file.src_uri
    for link, path in {*_outside(markdown, here, config)}:
        if files.get_file_from_path(_page_of(path)) is not None:
            markdown = markdown.replace(f"]({link})", f"]({_relative(_page_of(path), here)})")

    def linked(match: re.Match[str]) -> str:
        target = _page_of(match["path"])
        return match[0] if files.get_file_from_path(target) is None else f"[{match[0]}]({_relative(target, here)})"

    return _SCRIPT.sub(linked, markdown) if not here.startswith("source/") else markdown


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).resolve().parent


def _outside(markdown: str, here: str, config: MkDocsConfig) -> Iterator[tuple[str, str]]:
    """Yield each link that leads out of the pages' folder, and the path in the repository that it names."""
    docs = Path(config.docs_dir).relative_to(_root(config)).as_posix()
    for match in _LINK.finditer(markdown):
        link = match["link"]
        if re.match(r"[a-z]+:|#|/", link):
            continue
        path = posixpath.normpath(posixpath.join(docs, posixpath.dirname(here), link.partition("#")[0]))
        if not path.startswith(f"{docs}/") and not path.startswith(".."):
            yield link, path


def _page_of(path: str) -> str:
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def _relative(target: str, here: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(here) or ".")


def _content(root: Path, path: str) -> str:
    """Return the page of a file or a folder."""
    head = f"---\ntitle: {path}\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n"
    found = root / path
    if found.is_dir():
        names = sorted(one.name for one in found.iterdir() if one.is_file() and not one.name.startswith("."))
        here = _page_of(path)
        return head + "\n".join(f"- [{name}]({_relative(_page_of(f'{path}/{name}'), here)})" for name in names) + "\n"
    try:
        text = found.read_text(encoding="utf-8")[:_SHOWN]
    except UnicodeDecodeError:
        return f"{head}A binary file of {found.stat().st_size:,} bytes.\n"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{head}{fence}{_LANGUAGES.get(found.suffix, 'text')}\n{text}\n{fence}\n"
