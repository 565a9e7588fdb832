"""Other users: what tests need to act for them, as root."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import processes

_NOBODY = 65534
_ROOT = Path(__file__).parents[2]
_MAIN = "from voxload.cli.start import main; main()"


def acting_as(user: int) -> list[str]:
    """Return what a command begins with that is run by a user, with the user's first group and no other."""
    group = next((one.pw_gid for one in pwd.getpwall() if one.pw_uid == user), user)
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"]


@contextmanager
def folder_of_all() -> Iterator[Path]:
    """Give a folder that all users may look into to a block of code.

    Not one of pytest's: whenever it starts, it closes the folder that all of those lie in.
    """
    with TemporaryDirectory(prefix="voxload-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def program_of_all(folder: Path) -> Path | None:
    """Write a program ``voxload`` that all users may run, and return it; None where they may look into no Python.

    That of the tests may lie in a folder of root's; the system's does for it where it is of the same version.
    """
    packages = [str(_ROOT), *(one for one in sys.path if one.endswith("site-packages"))]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    for python in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        # By a shell: setpriv itself may look where its user may not.
        command = [*acting_as(_NOBODY), "sh", "-c", 'exec "$0" "$@"', python, "-c", "import voxload.cli.start, torch"]
        if Path(python).exists() and not _status(command, environment):
            break
    else:
        return None
    words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    program = folder / "voxload"
    program.write_text(f'#!/bin/sh\n{" ".join(words)} exec {python} -c {shlex.quote(_MAIN)} "$@"\n')
    program.chmod(0o755)
    return program


def _status(command: list[str], environment: dict[str, str]) -> int:
    return processes.run(command, check=False, capture_output=True, env=environment, cwd="/").returncode
