"""Dropping all of the system's clean caches (/proc/sys/vm/drop_caches): as root, or by sudo without a password."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from voxload.errors import StorageError

_KNOB = Path("/proc/sys/vm/drop_caches")
_ALL = "3\n"
"""Pages, and entries of directories and inodes: a cold run looks these up anew, too."""
_PATIENCE = 120
"""Seconds: dropping the caches of a large node takes a while."""


def may_drop() -> bool:
    """Tell whether this process may drop them: by itself, or through ``sudo -n``."""
    if os.access(_KNOB, os.W_OK, effective_ids=True):
        return True
    command = _sudo()
    return command is not None and _run([*command[:2], "-l", *command[2:]], "") == ""


def drop_caches() -> None:
    """Write what is dirty to storage, then drop the caches of the whole node.

    Raises StorageError when the system refuses.
    """
    os.sync()
    failure = "not permitted, and there is no sudo"
    if os.access(_KNOB, os.W_OK, effective_ids=True):
        failure = _write()
    elif (command := _sudo()) is not None:
        failure = _run(command, _ALL)
    if failure:
        raise StorageError(f"{_KNOB}", found=failure, remedy="run as root, allow it to sudo, or choose fadvise")


def _write() -> str:
    """Return what went wrong; empty for nothing."""
    try:
        _KNOB.write_text(_ALL)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _sudo() -> list[str] | None:
    """Return the command that writes what it reads; None without sudo."""
    sudo, tee = shutil.which("sudo"), shutil.which("tee")
    return [sudo, "-n", tee, f"{_KNOB}"] if sudo and tee else None


def _run(command: list[str], text: str) -> str:
    """Return what went wrong; empty for nothing."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_PATIENCE, check=False, env=_PLAIN
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"


_PLAIN = {"PATH": os.defpath, "LC_ALL": "C"}
"""What a command needs to know."""
