"""PeerAddress: where a rank's blocks can be had, and which of its addresses others should use."""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import os
import secrets
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from voxload.errors import UsageError

LOOPBACK = "127.0.0.1"
"""Where nobody but this node can ask."""

TOKEN_BYTES = 32
"""Beyond guessing."""

_SIOCGIFADDR = 0x8915
"""ioctl that tells an interface's IPv4 address; netdevice(7)."""
_DISCARD = 9
"""Any port does to ask for a route; nothing is sent there."""


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Where the blocks of one rank can be had; ranks exchange these once, through the rendezvous."""

    host: str
    """`host_identity` of its node."""
    arena: str = ""
    """File of its memory tier; empty where it has none."""
    disk: str = ""
    """Folder of its disk tier; empty where it has none."""
    location: str = ""
    """Of its server; empty where it has none."""


def host_identity() -> str:
    """Return what tells this node from all others, and this boot from others: files in memory last no longer.

    Containers of one machine differ by their host names: they do not share ``/dev/shm``.
    """
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {socket.gethostname()}"


def job_token() -> bytes:
    """Return a fresh random token: one rank makes it and hands it to the others through the rendezvous."""
    return secrets.token_bytes(TOKEN_BYTES)


def public_name(token: bytes) -> str:
    """Return a name for a job that everyone may see, such as in ``/dev/shm``: it tells nothing of the token."""
    return hashlib.blake2b(b"names of segments", key=token, person=b"voxload name", digest_size=8).hexdigest()


def interface_address(name: str) -> str:
    """Return the IPv4 address of a network interface, such as ``ib0``; raises UsageError where there is none."""
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            known = ", ".join(found for _, found in socket.if_nameindex())
            raise UsageError(
                "interface", found=repr(name), expected=f"one with an IPv4 address, of {known}", remedy="name another"
            ) from error
    return socket.inet_ntoa(answer[20:24])


def route_address(target: str | None = None) -> str:
    """Return the address of the interface through which this node reaches another one; nothing is sent.

    `target` is a host name or address, the rendezvous host (MASTER_ADDR) by default; loopback where there is none.
    Raises UsageError where `target` has no address or no route leads to it.
    """
    target = os.environ.get("MASTER_ADDR", "") if target is None else target
    if not target:
        return LOOPBACK
    try:
        family, kind, _, _, where = socket.getaddrinfo(target, _DISCARD, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UsageError(
            "rendezvous host",
            found=f"{target!r}: {error.strerror or error}",
            expected="a host that a route leads to",
            remedy="set MASTER_ADDR, or name the interface that peers are to use",
        ) from error


def far_locations(addresses: Mapping[int, PeerAddress], host: str) -> dict[int, str]:
    """Return where the servers of other nodes listen, by group.

    Raises UsageError where one listens on its own node's loopback: nobody here can ask it.
    """
    found = {}
    for group, address in addresses.items():
        if address.host == host or not address.location:
            continue
        name = address.location.partition("://")[2].rpartition(":")[0].strip("[]")
        if ipaddress.ip_address(name).is_loopback:
            raise UsageError(
                f"peer server of group {group}",
                found=address.location,
                expected="an address that other nodes reach",
                remedy="name the interface that peers are to use: MASTER_ADDR leads to loopback there",
            )
        found[group] = address.location
    return found
