"""Source pages: files of the repository that pages link to, shown in the site, so that no claim points outside of it.

mkdocs calls `on_files` and `on_page_markdown`. A link to ``../../bench/loader.py``, or the code span
``bench/loader.py``, leads to a page that shows that file; one to a folder leads to a list of its files; a README is
shown as a page of its own, whose links do the same.
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
_LANGUAGES = {
    ".py": "python",
    ".sh": "bash",
    ".sbatch": "bash",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".lua": "lua",
}
_SHOWN = 400_000
"""Most characters of a file that is shown."""
_FOLDER = "source/"
"""Where the pages of files are."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file and folder of the repository that a page links to."""
    root = _root(config)
    wanted: set[str] = set()
    for file in files.documentation_pages():
        wanted |= _named(file.content_string, f"{_docs(config)}/{file.src_uri}", config)
    done: set[str] = set()
    while left := wanted - done:
        for path in sorted(left):
            done.add(path)
            found = root / path
            if found.is_dir():
                wanted |= {str(one.relative_to(root)) for one in _inside(found)}
            elif found.suffix == ".md" and found.exists():
                wanted |= _named(found.read_text(encoding="utf-8"), path, config)
    for path in sorted(done):
        if (root / path).exists():  # else mkdocs tells of the link
            text, apart = _content(root, path), InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, _page_of(path), content=text, inclusion=apart))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links and code spans lead to the pages of what they name."""
    here, docs = page.file.src_uri, f"{_docs(config)}/"
    is_source = here.startswith(_FOLDER)
    if is_source and not here.endswith("/README.md"):
        return markdown
    itself = here.removeprefix(_FOLDER) if is_source else f"{docs}{here}"
    for link, path in {*_links(markdown, itself)}:
        target = path.removeprefix(docs) if path.startswith(docs) else _page_of(path)
        if (is_source or not path.startswith(docs)) and files.get_file_from_path(target) is not None:
            _, mark, anchor = link.partition("#")
            markdown = markdown.replace(f"]({link})", f"]({_relative(target, here)}{mark}{anchor})")

    def linked(match: re.Match[str]) -> str:
        target = _page_of(match["path"])
        return match[0] if files.get_file_from_path(target) is None else f"[{match[0]}]({_relative(target, here)})"

    return _SCRIPT.sub(linked, markdown)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).resolve().parent


def _docs(config: MkDocsConfig) -> str:
    """Return the pages' folder in the repository."""
    return Path(config.docs_dir).relative_to(_root(config)).as_posix()


def _named(markdown: str, itself: str, config: MkDocsConfig) -> set[str]:
    """Return the paths in the repository, outside of the pages' folder, that a page at a path there names."""
    outside = {path for _, path in _links(markdown, itself) if not path.startswith(f"{_docs(config)}/")}
    return outside | {match["path"] for match in _SCRIPT.finditer(markdown)}


def _links(markdown: str, itself: str) -> Iterator[tuple[str, str]]:
    """Yield each link to a file, and the path in the repository that it names; those that leave it are left out."""
    for match in _LINK.finditer(markdown):
        link = match["link"]
        if not re.match(r"[a-z]+:|#|/", link):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(itself), link.partition("#")[0]))
            if not path.startswith(".."):
                yield link, path


def _page_of(path: str) -> str:
    return f"{_FOLDER}{path}" if path.endswith(".md") else f"{_FOLDER}{path}.md"


def _relative(target: str, here: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(here) or ".")


def _inside(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.is_file() and not one.name.startswith("."))


def _content(root: Path, path: str) -> str:
    """Return the page of a file or a folder."""
    head = f"---\ntitle: {path}\nsearch:\n  exclude: true\n---\n\n"
    found = root / path
    if found.name == "README.md":
        return f"---\ntitle: {path}\n---\n\n{found.read_text(encoding='utf-8')}"
    head += f"# `{path}`\n\n"
    if found.is_dir():
        here = _page_of(path)
        listed = [f"- [{one.name}]({_relative(_page_of(f'{path}/{one.name}'), here)})" for one in _inside(found)]
        return head + "\n".join(listed) + "\n"
    try:
        text = found.read_text(encoding="utf-8")[:_SHOWN]
    except UnicodeDecodeError:
        return f"{head}A binary file of {found.stat().st_size:,} bytes.\n"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{head}{fence}{_LANGUAGES.get(found.suffix, 'text')}\n{text}\n{fence}\n"
