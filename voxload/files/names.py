"""Names that came out of data, made fit to be names of files: none leads anywhere but into its own folder.

Names of members, datasets and samples become names of volumes, of files and of rows. What a stranger wrote there may
be absolute, climb by ``..``, hide behind a dot, be longer than a file system takes, or be no text at all.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from voxload.errors import InternalError

MAX_NAME_BYTES = 192
"""Bytes of a name at most: file systems take 255, and suffixes and the marks of unfinished files come on top."""
UNNAMED = "unnamed"
"""What is called by nothing that a file can be called by."""

_SEPARATORS = re.compile(r"[/\\]+")
_RESERVED = frozenset({"zarr.json", "voxload", "targets"})
"""What a converted volume's file has of its own beside the array: Zarr's metadata, the manifest and the targets."""
_DIGEST = 8


def safe_name(text: str) -> str:
    r"""Return a name of one segment for anything that data are called by; pure, and itself of what it returned.

    Separators become ``_``, and segments that say "here" or "above" go. A character that is not printable becomes its
    bytes in hexadecimal behind ``%``, also of bytes that are no UTF-8. A dot at the front, by which files are hidden,
    gets an ``x`` before it. Longer names are cut and end in a digest of the whole.

    >>> safe_name("fields/density"), safe_name("../../etc/passwd"), safe_name("/abs"), safe_name("z=0.5")
    ('fields_density', 'etc_passwd', 'abs', 'z=0.5')
    >>> safe_name("a\x1bb\udcff"), safe_name(".."), safe_name(".hidden")
    ('a%1Bb%FF', 'unnamed', 'x.hidden')
    """
    parts = [part for part in _SEPARATORS.split(text) if part not in ("", ".", "..")]
    name = "".join(one if one.isprintable() else _percent(one) for one in "_".join(parts)) or UNNAMED
    return short_name(f"x{name}" if name.startswith(".") else name)


def safe_dataset(text: str) -> str:
    """Return the same for the array in a volume's file, which has things of its own there, as Zarr reserves names.

    >>> safe_dataset("a/density"), safe_dataset("zarr.json"), safe_dataset("__x")
    ('a_density', 'xzarr.json', 'x__x')
    """
    name = safe_name(text)
    return short_name(f"x{name}") if name.startswith("__") or name in _RESERVED else name


def short_name(name: str, limit: int = MAX_NAME_BYTES) -> str:
    """Return a name of at most `limit` bytes in UTF-8: the same, or its beginning and a digest of all of it."""
    data = name.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return name
    digest = hashlib.sha256(data).hexdigest()[:_DIGEST]
    return f"{data[: limit - _DIGEST - 1].decode('utf-8', 'ignore')}~{digest}"


def stays_inside(name: str) -> bool:
    """Tell whether a name that is joined to a folder, perhaps with folders of its own, stays in it; pure."""
    return "\0" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


def inside(folder: Path, name: str) -> Path:
    """Return the path of `name` in a folder, where the name is one that voxload made; costs no system call.

    Raises InternalError when it leads out of the folder: names of data are made safe long before, by `safe_name`.
    """
    if not stays_inside(name):
        raise InternalError(f"{folder}", found=f"name {name!r}", expected="one that stays in the folder")
    return folder / name


def _percent(character: str) -> str:
    """Return the bytes of a character, or the byte that it stands for where a name was no UTF-8 (PEP 383)."""
    is_byte = "\udc80" <= character <= "\udcff"
    return "".join(
        f"%{one:02X}" for one in character.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    )
