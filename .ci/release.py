"""Release what is committed: an annotated tag, release notes, sdist, wheel and SHA256SUMS, or nothing of it.

    python .ci/release.py --dry-run             say what would be released
    python .ci/release.py [--output FOLDER]     build it into FOLDER, dist unless told otherwise, and tag the commit

The version is that of the first section of CHANGELOG.md, `## VERSION - DATE`; every other place must have the same.
Artefacts are built from what is committed, and nothing is pushed: look at them, then push the tag.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import NoReturn

PLACES = {
    "pyproject.toml": r'^version = "(.+)"$',
    "CITATION.cff": r"^version: (.+)$",
    "deploy/conda/recipe.yaml": r'^  version: "(.+)"$',
    "deploy/containers/Containerfile": r"^# podman build -t voxload:(\S+) ",
}
"""Where the version stands, and how."""
NOTES, SUMS = "RELEASE-NOTES.md", "SHA256SUMS"
_SECTION = re.compile(r"^## +(\S+) +- +(\S+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Release:
    """What is to be released."""

    version: str
    notes: str
    """The section of the changelog, without its heading."""

    @property
    def tag(self) -> str:
        """Name of the tag."""
        return f"v{self.version}"


def main() -> None:
    """Release; raises SystemExit with the reason, and has changed nothing, where something is not as it must be."""
    parser = argparse.ArgumentParser(description="Release what is committed.")
    parser.add_argument("--dry-run", action="store_true", help="say what would be released, and change nothing")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="folder that gets the artefacts")
    given = parser.parse_args()
    os.chdir(Path(__file__).resolve().parents[1])
    release = checked(given.output)
    if given.dry_run:
        print(f"would tag {_git('rev-parse', 'HEAD')} as {release.tag}, and build {given.output}/ with these notes:\n")
        print(release.notes)
        return
    build(release, given.output)
    print(f"{given.output}/ holds {', '.join(sorted(path.name for path in given.output.iterdir()))}")
    print(f"tagged {release.tag}; to publish it: git push origin {release.tag}")


def checked(output: Path) -> Release:
    """Return the release, where there can be one."""
    if changes := _git("status", "--porcelain"):
        _refuse("the tree", f"changes that are not committed:\n{changes}", "commit or stash them")
    section = _SECTION.search(Path("CHANGELOG.md").read_text(encoding="utf-8"))
    if section is None:
        _refuse("CHANGELOG.md", "no section", "begin one with ## VERSION - DATE")
    version, date, notes = section[1], section[2], section[3].strip()
    for place, version_of in _versions().items():
        if version_of != version:
            _refuse(place, f"version {version_of}, where CHANGELOG.md begins with {version}", "make them the same")
    if not _DATE.fullmatch(date):
        _refuse(f"CHANGELOG.md, {version}", f"{date} as its date", "write the date of the release, such as 2031-12-24")
    if not notes:
        _refuse(f"CHANGELOG.md, {version}", "nothing", "say what is new")
    release = Release(version, notes)
    if _git("tag", "--list", release.tag):
        _refuse(f"tag {release.tag}", "it", "a version is released once: raise it")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        _refuse(str(output), "something", "take it away, or choose another --output")
    return release


def build(release: Release, output: Path) -> None:
    """Build the artefacts from the commit, and tag it when all of them are there."""
    date = _git("show", "--no-patch", "--format=%ct", "HEAD")
    with tempfile.TemporaryDirectory(dir=output.resolve().parent, prefix=f".{output.name}-") as name:
        source, made = Path(name) / "source", Path(name) / "made"
        archive = subprocess.run(["git", "archive", "HEAD"], check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(source, filter="tar")
        environment = {**os.environ, "SOURCE_DATE_EPOCH": date}
        environment.pop("PYTHONPATH", None)
        words = [sys.executable, "-m", "build", "--outdir", str(made), str(source)]
        done = subprocess.run(words, check=False, env=environment, capture_output=True, text=True)
        if done.returncode:
            _refuse("the build", f"{done.stdout}{done.stderr}", "mend it")
        files = sorted(made.iterdir())
        if not all(path.name.startswith(f"voxload-{release.version}") for path in files):
            _refuse("the build", ", ".join(path.name for path in files), f"build version {release.version}")
        subprocess.run([sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files], check=True)
        (made / NOTES).write_text(f"{release.notes}\n", encoding="utf-8")
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(made.iterdir())]
        (made / SUMS).write_text("".join(sums), encoding="utf-8")
        if output.exists():
            output.rmdir()  # it is empty
        made.rename(output)
    message = f"voxload {release.version}\n\n{release.notes}\n"
    # As it stands: lines of the notes that begin with # are headings, not comments.
    words = ["git", "tag", "--annotate", "--cleanup=verbatim", "--file=-", release.tag]
    subprocess.run(words, check=True, input=message, text=True)


def _versions() -> dict[str, str]:
    """Return the version that each place has; the package itself need not name one."""
    found = {}
    for place, pattern in PLACES.items():
        match = re.search(pattern, Path(place).read_text(encoding="utf-8"), re.MULTILINE)
        if match is None:
            _refuse(place, "no version", f"write one as {pattern}")
        found[place] = match[1]
    own = re.search(r'^__version__ = "(.+)"$', Path("voxload/__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    return found | ({"voxload/__init__.py": own[1]} if own else {})


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _refuse(subject: str, found: str, remedy: str) -> NoReturn:
    raise SystemExit(f"release: {subject}: found {found}; {remedy}")


if __name__ == "__main__":
    main()
