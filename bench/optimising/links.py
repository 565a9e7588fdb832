"""Links: a network namespace for each rank, joined by a bridge, whose link sends a limited number of bits a second.

They are made inside namespaces of this process's own (`enter`), which are gone with it. Linux with iproute2 alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

_INSIDE = "VOXLOAD_BENCH_INSIDE"
_SUBNET = "10.87.0"
DEVICE = "eth0"
"""A rank's link."""
_TOOLS = ("ip", "tc", "unshare", "mount")


def enter() -> None:
    """Run this script again in network and mount namespaces of its own, unless it is in them."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        sys.exit(f"links of limited speed need {', '.join(missing)}: install iproute2 and util-linux")
    if os.environ.get(_INSIDE) != "1":
        maps = [] if os.geteuid() == 0 else ["--map-root-user"]
        command = ["unshare", "--net", "--mount", *maps, sys.executable, *sys.argv]
        os.execvpe(command[0], command, os.environ | {_INSIDE: "1"})  # noqa: S606 - this script itself
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")  # where namespaces have their names


def make(ranks: int) -> None:
    """Make the namespaces of ranks, and join them."""
    _run("ip", "link", "add", "bridge", "type", "bridge")
    _run("ip", "link", "set", "bridge", "up")
    for rank in range(ranks):
        name, port = _name(rank), f"port{rank}"
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", DEVICE, "netns", name)
        _run("ip", "link", "set", port, "master", "bridge", "up")
        _run("ip", "-n", name, "addr", "add", f"{address(rank)}/24", "dev", DEVICE)
        for device in ("lo", DEVICE):
            _run("ip", "-n", name, "link", "set", device, "up")


def limit(ranks: int, megabits: int) -> None:
    """Let each rank send so many megabits a second."""
    burst = max(megabits * 125_000 // 100, 65_536)  # bytes of ten milliseconds: what a kernel's clock can tell apart
    for rank in range(ranks):
        rate = ["rate", f"{megabits}mbit", "burst", str(burst), "latency", "100ms"]
        _run("tc", "-n", _name(rank), "qdisc", "replace", "dev", DEVICE, "root", "tbf", *rate)


def command(rank: int, *words: str) -> list[str]:
    """Return a command that runs Python with `words` where a rank is."""
    return ["ip", "netns", "exec", _name(rank), sys.executable, *words]


def address(rank: int) -> str:
    """Return a rank's address."""
    return f"{_SUBNET}.{rank + 1}"


def _name(rank: int) -> str:
    return f"rank{rank}"


def _run(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip()}: run as root, or where user namespaces are allowed")
