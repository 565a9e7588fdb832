"""``voxload serve``: keep blocks in this node's memory for all jobs of this user."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from voxload.cache.peer.tls import Tls
from voxload.cli.options import parse_names
from voxload.errors import UsageError
from voxload.serve.place import OF_ALL, service_path
from voxload.serve.ring.ring import RingOptions
from voxload.serve.seen.where import Where
from voxload.serve.service import serve as run_service
from voxload.serve.tenancy.front import serve_all
from voxload.units import format_bytes, parse_bytes

EPILOG = 'Example: voxload serve --memory 64GiB, and in each job DataLoader(..., cache=voxload.Cache(service="auto"))'
"""Shown at the end of the command's help."""
_ROLES = ("all", "reader", "taker")
_LEAST_TOKEN = 16
_LEAST_THREADS = 4
"""Reads at once: most of them wait for a storage."""


def serve(
    *,
    memory: Annotated[str, typer.Option(help="Bytes of this node's memory, such as 64GiB; set aside at once.")],
    disk: Annotated[
        Path | None, typer.Option(help="Folder on a disk of this node that keeps blocks, for the next service too.")
    ] = None,
    disk_size: Annotated[str, typer.Option(help="Bytes of it, such as 3TiB.")] = "",
    socket: Annotated[
        str, typer.Option(help="Path of the socket; by default where Cache(service='auto') looks for it.")
    ] = "auto",
    all_users: Annotated[
        bool, typer.Option("--all-users", help="Serve all users of the node, each with their own rights; for root.")
    ] = False,
    quota: Annotated[
        str, typer.Option(help="With --all-users: bytes that one of them may have.", show_default="all")
    ] = "",
    http: Annotated[
        str, typer.Option(help="Serve metrics and a page there: 127.0.0.1:9640, or the path of a Unix socket.")
    ] = "",
    http_token: Annotated[
        Path | None, typer.Option(help="File with the token that a port asks for.", show_default="a new one")
    ] = None,
    ring: Annotated[
        str, typer.Option(help="Meet services of other nodes by dask:tcp://SCHEDULER:PORT or torch:HOST:PORT.")
    ] = "",
    ring_host: Annotated[str, typer.Option(help="Address of this node that the others reach.")] = "127.0.0.1",
    ring_token: Annotated[Path | None, typer.Option(help="File with the token that all of them know.")] = None,
    ring_tls: Annotated[
        str, typer.Option(help="Files of a certificate, its key and roots, with commas: both sides show theirs.")
    ] = "",
    role: Annotated[
        str, typer.Option(help="In a ring: all or reader read for others, too; a taker has others read for it.")
    ] = "all",
    offload: Annotated[
        str, typer.Option(help="Share of what a taker has others read, 0 to 1; auto follows its jobs' stall.")
    ] = "auto",
    threads: Annotated[int, typer.Option(help="Reads at once; 0 for one a core.", min=0)] = 0,
) -> None:
    """Keep blocks in this node's memory for all jobs of this user: each is read once, whoever wants it."""
    nbytes = parse_bytes(memory)
    if nbytes < 1:
        raise UsageError("--memory", found=memory, expected="more than nothing, such as 64GiB")
    if (disk is None) != (not disk_size):
        raise UsageError(
            "--disk", found=f"{disk}, --disk-size {disk_size!r}", expected="a folder and its bytes, or neither"
        )
    level = None if disk is None else (disk, parse_bytes(disk_size))
    path = OF_ALL if all_users and socket == "auto" else Path(service_path(socket))
    count = threads or max(_LEAST_THREADS, len(os.sched_getaffinity(0)))

    where = Where.parse(http, token=_token(http_token)) if http else None

    def ready(address: str) -> None:
        more = "" if level is None else f" and {format_bytes(level[1])} in {level[0]}"
        print(f"voxload: serving {format_bytes(nbytes)}{more} at {path}", file=sys.stderr, flush=True)
        if address:
            print(f"voxload: seen at {address}", file=sys.stderr, flush=True)

    if all_users:
        if level is not None:
            raise UsageError("--disk", found="--all-users", expected="none, for memory is all that it has")
        if ring:
            raise UsageError("--ring", found="--all-users", expected="none, for a ring is of one user's services")
        asyncio.run(
            serve_all(
                path,
                memory=nbytes,
                threads=count,
                quota=parse_bytes(quota) if quota else nbytes,
                ready=ready,
                http=where,
            )
        )
        return
    met = (ring, _ring(ring_host, ring_token, ring_tls, role=role, offload=offload)) if ring else None
    asyncio.run(run_service(path, memory=nbytes, threads=count, ready=ready, disk=level, http=where, ring=met))


def _token(file: Path | None) -> str:
    if file is None:
        return ""
    token = file.read_text().strip()
    if len(token) < _LEAST_TOKEN:
        expected = f"{_LEAST_TOKEN} or more that nobody guesses"
        raise UsageError("token", found=f"{len(token)} characters in {file}", expected=expected)
    return token


def _ring(host: str, token: Path | None, tls: str, *, role: str, offload: str) -> RingOptions:
    if token is None:
        raise UsageError("--ring", found="no --ring-token", expected="a file with a token that all members know")
    files = [Path(one) for one in parse_names(tls)]
    if len(files) not in (0, 3):
        raise UsageError("--ring-tls", found=repr(tls), expected="three files: certificate, key and roots")
    if role not in _ROLES:
        raise UsageError("--role", found=repr(role), expected=" or ".join(_ROLES))
    encrypted = Tls(files[0], files[1], files[2], mutual=True) if files else None
    return RingOptions(host, _token(token).encode(), encrypted, reads=role != "taker", share=_share(offload))


def _share(text: str) -> float | None:
    try:
        share = None if text == "auto" else float(text)
    except ValueError:
        share = -1.0
    if share is not None and not 0.0 <= share <= 1.0:
        raise UsageError("--offload", found=repr(text), expected="auto, or a share from 0 to 1")
    return share
