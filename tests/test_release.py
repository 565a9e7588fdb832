""".ci/release.py in a repository of its own: what it refuses, says beforehand, and makes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support import processes

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
FILES = (
    ".ci/release.py",
    "CHANGELOG.md",
    "CITATION.cff",
    "deploy/conda/recipe.yaml",
    "deploy/containers/Containerfile",
    "pyproject.toml",
    "voxload/__init__.py",
)
"""What it looks at before it builds."""


def git(place: Path, *words: str) -> str:
    """Run git, with no settings but these, and return what it prints."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    names = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    done = processes.run(["git", *names, *words], cwd=place, env=environment, stdout=subprocess.PIPE, text=True)
    return str(done.stdout).strip()


def release(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a repository."""
    environment = {**os.environ, "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@localhost"}
    command = [sys.executable, str(place / ".ci" / "release.py"), *words]
    return processes.run(command, cwd=place.parent, env=environment, capture_output=True, text=True, check=False)


def repository(place: Path, files: tuple[str, ...]) -> Path:
    """Return a repository with files of this one committed, and a date in the changelog."""
    for name in files:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name, follow_symlinks=False)
    changelog = place / "CHANGELOG.md"
    dated = re.sub(rf"(## {re.escape(VERSION)} - )\S+", r"\g<1>2031-12-24", changelog.read_text(), count=1)
    changelog.write_text(dated)
    git(place, "init", "--quiet")
    commit(place)
    return place


def commit(place: Path) -> None:
    """Commit all that there is."""
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message=all")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a repository that may be released."""
    return repository(tmp_path / "voxload", FILES)


def test_a_dry_run_says_all_and_changes_nothing(place: Path) -> None:
    """The tag, the commit and the notes."""
    done = release(place, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert f"would tag {git(place, 'rev-parse', 'HEAD')} as v{VERSION}, and build dist/" in done.stdout
    assert "### Added" in done.stdout
    assert "## 0.0" not in done.stdout
    assert git(place, "tag", "--list") == git(place, "status", "--porcelain", "--ignored") == ""


def test_notes_end_where_an_earlier_version_begins(place: Path) -> None:
    """The first section alone."""
    changelog = place / "CHANGELOG.md"
    changelog.write_text(
        f"# Changelog\n\n## {VERSION} - 2031-12-24\n\n### Added\n\n- New.\n\n## 0.0.1 - 2030-01-01\n\n- Old.\n"
    )
    commit(place)
    assert release(place, "--dry-run").stdout.endswith("with these notes:\n\n### Added\n\n- New.\n")


def _replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    def replace(place: Path) -> None:
        text = (place / name).read_text()
        assert old in text
        (place / name).write_text(text.replace(old, new))
        commit(place)

    return replace


def _file(name: str) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("")

    return write


def _tag(place: Path) -> None:
    git(place, "tag", f"v{VERSION}")


OTHER = f"version 9.9, where CHANGELOG.md begins with {VERSION}"
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a file that is not committed": (_file("new.py"), "changes that are not committed:\n?? new.py"),
    "a tag that is there": (_tag, f"tag v{VERSION}: found it"),
    "no such section": (_replaced("CHANGELOG.md", f"## {VERSION} - ", "## 9.9 - "), "begins with 9.9"),
    "no section": (_replaced("CHANGELOG.md", "## ", "# "), "CHANGELOG.md: found no section"),
    "no date": (_replaced("CHANGELOG.md", "2031-12-24", "unreleased"), "found unreleased as its date"),
    "another project": (_replaced("pyproject.toml", f'version = "{VERSION}"', 'version = "9.9"'), OTHER),
    "another citation": (_replaced("CITATION.cff", f"\nversion: {VERSION}", "\nversion: 9.9"), OTHER),
    "another recipe": (_replaced("deploy/conda/recipe.yaml", f'"{VERSION}"', '"9.9"'), OTHER),
    "another image": (_replaced("deploy/containers/Containerfile", f"voxload:{VERSION}", "voxload:9.9"), OTHER),
    "another package": (_replaced("voxload/__init__.py", "_HOMES = {", '__version__ = "9.9"\n_HOMES = {'), OTHER),
    "artefacts of before": (_file("dist/voxload-0.tar.gz"), "dist: found something"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_as_it_must_be_is_refused(case: str, place: Path) -> None:
    """With the reason, before anything is built or tagged."""
    change, reason = REFUSED[case]
    (place / ".gitignore").write_text("dist/\n")
    commit(place)
    change(place)
    tags = git(place, "tag", "--list")
    done = release(place)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("release: ")
    assert reason in done.stderr
    assert git(place, "tag", "--list") == tags


@pytest.mark.long
def test_a_release_is_whole(tmp_path: Path) -> None:
    """Tag, notes, sdist, wheel and sums that hold; a second one is refused."""
    tracked = processes.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
    place = repository(tmp_path / "voxload", tuple(filter(None, tracked.split("\0"))))
    done = release(place, "--output", "made")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    made = place / "made"
    (wheel,), (sdist,) = made.glob("*.whl"), made.glob("*.tar.gz")
    assert {path.name for path in made.iterdir()} == {wheel.name, sdist.name, "SHA256SUMS", "RELEASE-NOTES.md"}
    assert {path.name.split("-")[1].removesuffix(".tar.gz") for path in (wheel, sdist)} == {VERSION}
    sums = dict(line.split("  ")[::-1] for line in (made / "SHA256SUMS").read_text().splitlines())
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, sdist, made / "RELEASE-NOTES.md")
    }
    with ZipFile(wheel) as archive:
        assert "voxload/core/_core.abi3.so" in archive.namelist()
        assert not [name for name in archive.namelist() if name.endswith((".c", ".h"))]
    notes = (made / "RELEASE-NOTES.md").read_text()
    assert git(place, "cat-file", "-p", f"v{VERSION}").partition("\n\n")[2] == f"voxload {VERSION}\n\n{notes}".strip()
    assert git(place, "rev-parse", f"v{VERSION}^{{commit}}") == git(place, "rev-parse", "HEAD")
    shutil.rmtree(made)
    assert f"tag v{VERSION}: found it" in release(place, "--output", "made").stderr
