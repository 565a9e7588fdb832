"""Schemes: which kinds of URLs are opened, before any library looks at one.

fsspec's URLs can do more than name an object: they chain file systems, and some of these run programs, follow what a
file at the far end says, or read with the rights of another service. A URL may come out of a stranger's file, so only
plain storages are opened unless the user names others in the environment.
"""

from __future__ import annotations

import os

from voxload.errors import UsageError

VARIABLE = "VOXLOAD_URL_SCHEMES"
"""Environment variable with further schemes, by commas: of storages, and of what a chain of URLs begins with."""
OBSTORE = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https"})
"""What obstore serves, which knows no chains."""
FSSPEC = frozenset({"file", "local", "memory", "ftp", "sftp", "ssh", "gcs", "hdfs", "webhdfs", "oss", "hf"})
"""What is opened through fsspec: each reads the object that the URL names, and nothing else."""
_CHAIN = "::"


def check_scheme(url: str) -> None:
    """Refuse a URL whose scheme, or one of whose schemes where it is a chain, is not one of those that are opened.

    Raises UsageError. Source: fsspec, features, "URL chaining": each link but the last wraps those behind it.
    """
    if url.partition("://")[0] in OBSTORE:
        return
    further = {name.strip() for name in os.environ.get(VARIABLE, "").split(",")} - {""}
    *wrapping, last = (link.partition("://")[0] for link in url.split(_CHAIN))
    known = FSSPEC | OBSTORE | further
    odd = next((name for name in wrapping if name not in further), None) or (last if last not in known else None)
    if odd is None:
        return
    chain = "a chain of URLs that begins with " if wrapping else "scheme "
    raise UsageError(
        url,
        found=f"{chain}{odd!r}",
        expected=f"one URL of {', '.join(sorted(OBSTORE | FSSPEC))}",
        remedy=f"if you trust whoever wrote it, name the scheme in the environment variable {VARIABLE}",
    )
