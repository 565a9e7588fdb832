"""Flight: blocks of other ranks over TCP, by Apache Arrow Flight (gRPC), with the job's token and, where asked, TLS.

A block travels as record batches of one column of bytes. With each batch comes the CRC-32C of the block up to its end,
which began with the block's digest: bytes of another block, in another order, or damaged on the way do not pass.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from voxload.cache.block import BlockKey
from voxload.cache.checksum import checksum
from voxload.cache.peer.lending import LendingBuffers
from voxload.cache.peer.protocol import Answer
from voxload.cache.peer.request import Request
from voxload.cache.peer.shelf import Shelf
from voxload.cache.peer.tls import Tls
from voxload.cache.stored import bytes_of
from voxload.cache.trouble import Trouble
from voxload.errors import StorageError, UsageError, VoxloadError
from voxload.readers.protocol import Volume
from voxload.readers.scratch import Bytes, Scratch

BATCH = 2**20
"""Bytes of a record batch: many enough that what a message costs does not count, and still in a core's cache when they
are summed after they were copied."""

LENT = 2**28
"""Bytes of blocks on their way out of one server."""

PATIENCE = 10.0
"""Seconds in which a block must have come, or be given up."""

_HEADER = "authorization"
_ANSWER = b"voxload.answer"
_ANSWERS = {answer.value.encode(): answer for answer in (Answer.GOT, Answer.ABSENT, Answer.WRONG)}
_CRC_BYTES = 4
_whole = Scratch()
"""Each thread's buffer for a block that its taker wants in pieces."""
_SHORTEST_TOKEN = 16


class FlightServer:
    """Lends blocks of a rank's tiers to the other ranks of its line; serves until it is closed.

    Parameters
    ----------
    shelf
        What is lent; closed with the server.
    host
        Address to listen at: loopback, or that of the interface that the job's nodes share. The port is any free one.
    token
        The job's: who does not show it gets nothing, not even whether a block exists.
    tls
        Certificate and key; None to send in the clear, the token too.
    lent
        Bytes, hard: blocks on their way out. A larger block is never lent.

    Raises
    ------
    UsageError
        When the host is every interface at once, or the token is short.
    StorageError
        When the address cannot be listened at.
    """

    def __init__(
        self, shelf: Shelf, *, token: bytes, host: str = "127.0.0.1", tls: Tls | None = None, lent: int = LENT
    ) -> None:
        name = _url_host(host)
        _check_token(token)
        certificates = [(tls.read(tls.certificate), tls.read(tls.key))] if tls else None
        self._shelf = shelf
        try:
            self._service = _Service(
                shelf,
                LendingBuffers(lent),
                location=f"{_scheme(tls)}://{name}:0",
                tls_certificates=certificates,
                middleware={"token": _Gate(token)},
            )
        except (pa.ArrowException, OSError) as error:
            raise StorageError(
                "peer server", found=f"{host}: {error}", expected="an address to listen at", remedy="check host and TLS"
            ) from error
        self.location = f"{_scheme(tls)}://{name}:{self._service.port}"
        """Where clients find it."""

    def close(self) -> None:
        """Send away who waits, end what is being sent, and stop; a client that hangs is left at its time-out."""
        self._shelf.close()
        self._service.is_closing = True
        self._service.shutdown()


class FlightPeers:
    """Fetches blocks from the Flight servers of other ranks; a `Peers`.

    Parameters
    ----------
    addresses
        Locations of the servers, by sample group.
    token
        The job's.
    timeout
        Seconds in which a block must have come, on top of what a call waits for one that is to come.
    tls
        Root certificates, and the name that certificates bear; None where servers send in the clear.
    """

    def __init__(
        self, addresses: Mapping[int, str], *, token: bytes, timeout: float = PATIENCE, tls: Tls | None = None
    ) -> None:
        _check_token(token)
        if not 0 < timeout < float("inf"):
            raise UsageError("timeout", found=str(timeout), expected="seconds, more than 0")
        self._timeout = timeout
        self._headers = [(_HEADER.encode(), _credentials(token))]
        roots = tls.read(tls.roots) if tls else None
        # A client connects when it is first used, and again by itself; an HTTP proxy is for the world, not for peers.
        self._clients = {
            group: fl.FlightClient(
                location,
                tls_root_certs=roots,
                override_hostname=(tls.name or None) if tls else None,
                generic_options=[("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)],
            )
            for group, location in addresses.items()
        }

    def get_into(self, group: int, key: BlockKey, out: Volume, *, wait: float) -> Answer:
        """Fill `out` with a block out of a group's tiers; see `Peers`. Raises UsageError for an unknown group."""
        if group not in self._clients:
            raise UsageError("group", found=str(group), expected=f"one of {sorted(self._clients)}")
        target = bytes_of(out) if out.flags.c_contiguous else _whole.stored(out.nbytes)
        request = Request(key, out.dtype, out.shape, wait)
        options = fl.FlightCallOptions(timeout=wait + self._timeout, headers=self._headers)
        try:
            reader = self._clients[group].do_get(fl.Ticket(request.encode()), options)
            try:
                answer = _receive(reader, key, target)
            finally:
                reader.cancel()
        except (pa.ArrowException, OSError):
            return Answer.LOST
        if answer is Answer.GOT and not out.flags.c_contiguous:
            np.copyto(out, target.view(out.dtype).reshape(out.shape))
        return answer

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()


def _receive(reader: Any, key: BlockKey, target: Bytes) -> Answer:
    """Copy what comes to its place and compare it there with the checksums."""
    schema = reader.schema
    answer = _ANSWERS.get((schema.metadata or {}).get(_ANSWER, b""))
    if answer is None or schema.types != [pa.uint8()]:
        return Answer.LOST
    place, crc = 0, _seed(key)
    for chunk in _chunks(reader):
        # Batches hold one column without nulls: buffers are validity and values.
        column = chunk.data.column(0)
        came = np.frombuffer(column.buffers()[1], np.uint8, len(column), column.offset)
        stop = place + len(came)
        if stop > len(target):
            return Answer.WRONG
        target[place:stop] = came
        crc = checksum(target[place:stop], crc)
        if chunk.app_metadata is None or chunk.app_metadata.to_pybytes() != crc.to_bytes(_CRC_BYTES, "little"):
            return Answer.WRONG
        place = stop
    return Answer.WRONG if answer is Answer.GOT and place != len(target) else answer


def _chunks(reader: Any) -> Iterator[Any]:
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return
        yield chunk


class _Service(fl.FlightServerBase):  # type: ignore[misc] # pyarrow has no types
    """The server itself; gRPC's threads call it."""

    def __init__(self, shelf: Shelf, buffers: LendingBuffers, **words: Any) -> None:
        self._shelf = shelf
        self._buffers = buffers
        self._trouble = Trouble("peer server")
        self.is_closing = False
        super().__init__(**words)

    def do_get(self, context: Any, ticket: Any) -> Any:  # noqa: ARG002 - the name and arguments are pyarrow's
        """Answer one request."""
        try:
            request = Request.decode(ticket.ticket)
        except VoxloadError as error:
            raise fl.FlightServerError(str(error)) from error
        answer, block = self._lend(request)
        schema = pa.schema([("bytes", pa.uint8())], metadata={_ANSWER: answer.value})
        return fl.GeneratorStream(schema, self._batches(schema, request.key, block))

    def _lend(self, request: Request) -> tuple[Answer, Bytes | None]:
        """Return a copy of the block that stays as it is while it is sent."""
        if not self._shelf.wait_for(request.key, request.wait):
            return Answer.ABSENT, None
        if request.nbytes > self._buffers.limit:
            limit = self._buffers.limit
            self._trouble.tell(
                "size", f"a block of {request.nbytes} bytes, at most {limit} are lent", remedy="raise what it may lend"
            )
            return Answer.ABSENT, None
        block = self._buffers.take(request.nbytes, patience=PATIENCE)
        if block is None:
            return Answer.ABSENT, None
        answer = self._shelf.get_into(request.key, block.view(request.dtype).reshape(request.shape))
        return answer, block if answer is Answer.GOT else None

    def _batches(self, schema: Any, key: BlockKey, block: Bytes | None) -> Iterator[tuple[Any, bytes]]:
        if block is None:
            return
        # Whatever gRPC still has to send refers to this buffer, and so to the block.
        whole, crc = pa.py_buffer(block), _seed(key)
        for start in range(0, len(block), BATCH):
            if self.is_closing:
                raise fl.FlightUnavailableError("the server closes")
            part = block[start : start + BATCH]
            crc = checksum(part, crc)
            column = pa.Array.from_buffers(pa.uint8(), len(part), [None, whole.slice(start, len(part))])
            batch = pa.RecordBatch.from_arrays([column], schema=schema)
            yield batch, crc.to_bytes(_CRC_BYTES, "little")


class _Gate(fl.ServerMiddlewareFactory):  # type: ignore[misc] # pyarrow has no types
    """Lets in who shows the token; sees every call before anything else does."""

    def __init__(self, token: bytes) -> None:
        super().__init__()
        self._credentials = _credentials(token)

    def start_call(self, info: Any, headers: Mapping[str, list[str | bytes]]) -> None:  # noqa: ARG002 - pyarrow's
        """Refuse a call without the token; the comparison takes as long for any wrong one."""
        shown = headers.get(_HEADER, [])
        if len(shown) != 1 or not hmac.compare_digest(_encoded(shown[0]), self._credentials):
            raise fl.FlightUnauthenticatedError("no token, or a wrong one")


def _encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _credentials(token: bytes) -> bytes:
    return b"Bearer " + token.hex().encode()


def _seed(key: BlockKey) -> int:
    """Return what the checksum of a block's bytes goes on from."""
    return checksum(key.digest)


def _scheme(tls: Tls | None) -> str:
    return "grpc+tls" if tls else "grpc+tcp"


def _url_host(host: str) -> str:
    """Return an address as URLs have it; raises UsageError for one that stands for every interface."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        raise UsageError("host", found=repr(host), expected="an IP address", remedy="resolve the name first") from None
    if found.is_unspecified:
        raise UsageError("host", found=host, expected="the address of one interface", remedy="name the interface")
    return f"[{host}]" if found.version == 6 else host


def _check_token(token: bytes) -> None:
    if len(token) < _SHORTEST_TOKEN:
        raise UsageError(
            "token",
            found=f"{len(token)} bytes",
            expected=f"at least {_SHORTEST_TOKEN}, random",
            remedy="make it with job_token()",
        )
