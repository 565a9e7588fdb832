"""Path traversal: paths that a file names stay in the folder that the user named, unless the user allows others.

A catalogue's rows, the headers of images, and the external, virtual and linked storage of HDF5 name files. Who made
them may have named any file that the reader of them may read, by ``..``, from the root on, by a URL or through a link.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache

from voxload.errors import UsageError

REMEDY = "if you trust whoever made it, allow that with --allow-outside, or allow_outside=True"
"""What to do about a path that leads out."""


def is_within(path: str, folder: str) -> bool:
    """Tell whether a path, all links followed, leads to a folder or into it; a URL never does.

    A relative path counts from the working directory. Costs a system call for each folder of both paths.
    """
    if "://" in path:
        return False
    real, base = os.path.realpath(path), os.path.realpath(folder)
    return real == base or real.startswith(os.path.join(base, ""))  # noqa: PTH118 - "/" has its separator already


def check_within(path: str, folder: str, *, subject: str) -> None:
    """Refuse a path that leads out of a folder; raises UsageError that says where, and how it is allowed."""
    if not is_within(path, folder):
        place = path if "://" in path else os.path.realpath(path)
        raise UsageError(subject, found=f"a path to {place}", expected=f"one in {folder or '.'}", remedy=REMEDY)


def check_links(path: str, folder: str, *, subject: str, is_new: bool = True) -> None:
    """Refuse a Zarr hierarchy of which a file or folder is a link that leads out of `folder`; see `check_within`.

    Every chunk is a file of its own: the folders are listed, and no chunk is asked for. A loader opens a sample in each
    epoch; with `is_new` false the links are those that were found when this process looked first.
    """
    for link in _links(path) if is_new else _known_links(path):
        check_within(link, folder, subject=subject)


def leaves(path: str) -> bool:
    """Tell whether a path says that it leads out of the folder that it counts from; links are not looked at.

    >>> leaves("a/b.h5"), leaves("a/../b.h5"), leaves("../b.h5"), leaves("/b.h5"), leaves("s3://b/c")
    (False, False, True, True, True)
    """
    return "://" in path or os.path.isabs(path) or os.path.normpath(path).split("/", 1)[0] == ".."  # noqa: PTH117


@lru_cache(maxsize=2**16)
def _known_links(folder: str) -> tuple[str, ...]:
    return _links(folder)


def _links(folder: str) -> tuple[str, ...]:
    """Return the links in a folder and in those below; none in a file."""
    return tuple(_found_links(folder)) if os.path.isdir(folder) else ()  # noqa: PTH112 - a string, as locations have it


def _found_links(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield entry.path
            elif entry.is_dir():
                yield from _found_links(entry.path)
