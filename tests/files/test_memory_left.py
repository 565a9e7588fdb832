"""Memory that is left: the least of what the machine and every group around a process leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from voxload.files.memory_left import V1, V2, Version, groups, memory_left, room


def test_what_is_left_is_less_than_there_is() -> None:
    """And more than nothing on a machine that runs tests."""
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    assert 0 < memory_left() < int(total.split()[1]) * 1024


HOST = """30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
31 23 0:27 / /old/cpu rw - cgroup cgroup rw,cpu
32 23 0:28 / /old/memory rw - cgroup cgroup rw,memory"""
CONTAINER = "30 23 0:26 /pod/one /sys/fs/cgroup rw,shared:2 master:1 - cgroup2 cgroup2 rw"


@pytest.mark.parametrize(
    ("memberships", "mounts", "expected"),
    [
        ("0::/", HOST, ["/sys/fs/cgroup"]),
        ("0::/user/job", HOST, ["/sys/fs/cgroup/user/job", "/sys/fs/cgroup/user", "/sys/fs/cgroup"]),
        ("0::/pod/one/job", CONTAINER, ["/sys/fs/cgroup/job", "/sys/fs/cgroup"]),
        ("0::/pod/one", CONTAINER, ["/sys/fs/cgroup"]),
        ("0::/../two", CONTAINER, ["/sys/fs/cgroup"]),
        ("5:cpu:/a\n4:cpuset,memory:/a", HOST, ["/old/memory/a", "/old/memory"]),
        ("", HOST, []),
    ],
)
def test_all_levels_that_are_mounted_are_found(memberships: str, mounts: str, expected: list[str]) -> None:
    """From a process's own up, in the version that it is in, below the part that a container sees."""
    found = list(groups(memberships, mounts))
    assert [str(folder) for folder, _ in found] == expected
    assert {version for _, version in found} <= {V1 if "memory" in memberships else V2}


@pytest.mark.parametrize("version", [V1, V2])
def test_a_group_leaves_its_limit_less_its_use(tmp_path: Path, version: Version) -> None:
    """Pages of files are counted as free, for the kernel drops them; a group without a limit has no say."""
    assert room(tmp_path, version) is None
    (tmp_path / version.limit).write_text("1000\n")
    (tmp_path / version.usage).write_text("800\n")
    prefix = version.prefix
    (tmp_path / "memory.stat").write_text(f"anon 500\n{prefix}active_file 60\n{prefix}inactive_file 40\nshmem 200\n")
    assert room(tmp_path, version) == 300
    (tmp_path / version.limit).write_text("max\n")
    assert room(tmp_path, version) is None
