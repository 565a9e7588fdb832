"""Documents: tables, texts and pictures that lie beside headerless cubes, told by their names and their first bytes.

Of a headerless file nothing but its size tells that it is a cube, and a file of another size may be one that was cut.
So a file counts as a document only where both its name and its content say so. Everything else has to be a cube.
"""

from __future__ import annotations

import re
from pathlib import Path

from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe

_TEXTS = re.compile(
    r"\.(bib|cff|cfg|conf|csv|hdr|html?|ini|ipynb|jsonl?|log|md|md5|nml|params?|py|rst|sbatch|sh|sha1|sha256|slurm|svg|tex"
    r"|toml|tsv|txt|xdmf|xml|xmf|ya?ml)"
)
"""Suffixes of text. Those that voxels may have, too, such as ``.dat``, are not among them."""
_NAMES = re.compile(
    r"authors|changelog|changes|citation|copying|install|licen[cs]e|makefile|manifest|md5sums|notice|readme|sha256sums"
    r"|todo|version"
)
"""Names of text without a suffix."""
_SIGNATURES = {
    ".pdf": b"%PDF",
    ".png": b"\x89PNG",
    ".gif": b"GIF8",
    ".jpg": b"\xff\xd8\xff",
    ".jpeg": b"\xff\xd8\xff",
    ".parquet": b"PAR1",
    ".xlsx": b"PK\x03\x04",
    ".docx": b"PK\x03\x04",
}
"""How other documents begin, by suffix."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""How text of spreadsheets may begin."""
_NO_TEXT = frozenset(range(32)) - frozenset(b"\t\n\v\f\r\x1b")
"""Bytes that are in no text, whatever its encoding of one byte a letter or of UTF-8."""


def is_document(probe: Probe) -> bool:
    """Tell whether a file is a table, a text or a picture, by its name and by how it begins; never of a folder.

    Raises StorageError when it cannot be read.
    """
    if probe.path.is_dir():
        return False
    suffix = probe.path.suffix.lower()
    if suffix in _SIGNATURES:
        return probe.head.startswith(_SIGNATURES[suffix])
    if not _TEXTS.fullmatch(suffix) and not _NAMES.fullmatch(probe.path.name.lower()):
        return False
    return probe.head.startswith(_UTF_16) or not _NO_TEXT.intersection(probe.head)


def is_beside(path: Path, hints: Hints, targets: object = None) -> bool:
    """Tell whether a file that was found in a folder is left out: a document beside headerless cubes, or the targets.

    Other cubes say themselves what they are: nothing is left out where `hints` describe no headerless ones.

    Parameters
    ----------
    path
        The file.
    hints
        What the caller says of the cubes.
    targets
        The caller's table of targets: a file, or the name that one has in each folder. What is no path is no file.
    """
    if hints.headerless is None:
        return False
    if isinstance(targets, Path):
        is_table = path.resolve() == targets.resolve() if targets.is_file() else path.name == targets.name
        if is_table:
            return True
    return is_document(Probe(path))
