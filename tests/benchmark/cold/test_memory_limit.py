"""Memory limit: the least of the node's memory and of the groups around a process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from voxload.benchmark.cold.node_memory import memory_limit
from voxload.errors import StorageError


def _proc(folder: Path, *, membership: str, mount: str) -> Path:
    """Write what the kernel says of a process in a node of 1 GiB, with groups under `folder`."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/meminfo").write_text("MemTotal:        1048576 kB\nMemFree:  5 kB\n")
    (folder / "proc/self/cgroup").write_text(membership)
    (folder / "proc/self/mountinfo").write_text(mount.format(folder=folder))
    return folder / "proc"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"job/step": "max", "job": "max"}, 2**30),
        ({"job/step": "max", "job": "536870912"}, 2**29),
        ({"job/step": "268435456", "job": "536870912"}, 2**28),
        ({"job/step": "99999999999", "job": "max"}, 2**30),
    ],
)
def test_groups_of_version_2(tmp_path: Path, limits: dict[str, str], expected: int) -> None:
    """The least limit of all groups around counts, and none above the node's memory."""
    proc = _proc(tmp_path, membership="0::/job/step\n", mount="30 23 0:26 / {folder}/groups rw - cgroup2 cgroup2 rw\n")
    for group, limit in limits.items():
        path = tmp_path / "groups" / group
        path.mkdir(parents=True, exist_ok=True)
        (path / "memory.max").write_text(f"{limit}\n")
    assert memory_limit(proc) == expected


def test_groups_of_version_1(tmp_path: Path) -> None:
    """Slurm's nodes often have the older groups, one hierarchy a controller."""
    proc = _proc(
        tmp_path,
        membership="5:cpu,cpuacct:/slurm\n4:memory:/slurm/job_7\n",
        mount="31 23 0:27 / {folder}/memory rw - cgroup cgroup rw,memory\n",
    )
    for group, limit in (("", 2**63 - 4096), ("slurm", 2**29), ("slurm/job_7", 2**27)):
        (tmp_path / "memory" / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / "memory" / group / "memory.limit_in_bytes").write_text(f"{limit}\n")
    assert memory_limit(proc) == 2**27


def test_this_node() -> None:
    """Here it is what the system says, or less."""
    assert 2**20 < memory_limit() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    """Without a word of the kernel there is no guess."""
    with pytest.raises(StorageError, match="meminfo"):
        memory_limit(tmp_path)
