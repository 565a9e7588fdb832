"""Within: paths that a file names stay in the folder that the user named, unless the user allows others.

A catalogue's rows, the headers of images, and the external, virtual and linked storage of HDF5 name files. Who made
them may have named any file that the reader of them may read, by ``..``, from the root on, by a URL or through a link.
"""

from __future__ import annotations

import os

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


def leaves(path: str) -> bool:
    """Tell whether a path says that it leads out of the folder that it counts from; links are not looked at.

    >>> leaves("a/b.h5"), leaves("a/../b.h5"), leaves("../b.h5"), leaves("/b.h5"), leaves("s3://b/c")
    (False, False, True, True, True)
    """
    return "://" in path or os.path.isabs(path) or os.path.normpath(path).split("/", 1)[0] == ".."  # noqa: PTH117
