"""Where a node's service listens, unless somebody says otherwise."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

VARIABLE = "VOXLOAD_SERVICE"
"""Variable of the environment with the path of the socket."""

OF_ALL = Path("/run/voxload/socket")
"""Socket of a service for all users of the node."""


def service_path(named: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the socket: the one that is named, or with ``auto`` or None the node's own.

    That is the one of the environment, else in the folder that the system gives each user while they are logged in
    (XDG Base Directory Specification), else in one of this user's in the folder for temporary files. Where nobody
    listens there, and there is one for all users, that.
    """
    if named is not None and os.fspath(named) != "auto":
        return Path(named)
    if given := os.environ.get(VARIABLE):
        return Path(given)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "voxload" if runtime else Path(tempfile.gettempdir()) / f"voxload-{os.geteuid()}"
    own = folder / "socket"
    return OF_ALL if not own.exists() and OF_ALL.exists() else own
