"""RemoteChunks and RemoteShards: the chunks of an array behind a URL, fetched ahead of their use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from voxload.errors import DataError
from voxload.readers.chunks.chunkcache import Identity
from voxload.readers.chunks.chunked import Fetch, Fetched, Mapped
from voxload.readers.decode.ratio import longest_stored
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.remote import RemoteStore
from voxload.readers.remote.coalesce import Get, Piece, plan_requests
from voxload.readers.remote.flight import Flight, Load
from voxload.readers.scratch import Bytes
from voxload.readers.zarr.chunkindex import ChunkIndex
from voxload.readers.zarr.shardindex import ABSENT


class RemoteChunks:
    """The chunks of an array that keeps each in an object of its own; safe to use from many threads at once.

    Parameters
    ----------
    store
        Where the objects are.
    index
        Their names; told how large they are.
    decoded
        Bytes of a decoded chunk.
    is_plain
        Whether they are stored as they are, so that every object has as many.
    """

    def __init__(self, store: RemoteStore, index: ChunkIndex, *, decoded: int, is_plain: bool) -> None:
        self._store = store
        self._index = index
        self._exact = decoded if is_plain else None
        self._limit = longest_stored(decoded, is_plain=is_plain)

    @contextmanager
    def expect(self, places: Sequence[Place]) -> Iterator[Fetch]:
        """Fetch the chunks at `places` ahead, in this order; yields what hands them out."""
        keys = {self._index.key_of(place): place for place in places}
        # How long a compressed chunk is, only its object's answer tells.
        groups = plan_requests([Piece(place, key, 0, self._limit) for key, place in keys.items()])

        def load(request: Get) -> Bytes | None:
            return self._load(request.pieces[0].place)

        with _flown(groups, load) as fetch:
            yield fetch

    def fetch(self, place: Place) -> Fetched | None:
        """Return a chunk as stored, or None when there is no such object."""
        data = self._load(place)
        return None if data is None else Fetched(data)

    def fetch_part(self, place: Place, start: int, stop: int) -> Fetched | None:  # noqa: ARG002 - one request either way
        """Return a chunk, whole."""
        return self.fetch(place)

    def identify(self, places: Sequence[Place]) -> list[Identity | None]:
        """Return None of each: the version of an object is told with its bytes, not before."""
        return [None] * len(places)

    def locate(self, places: Sequence[Place]) -> Mapped | None:  # noqa: ARG002 - as of every source
        """Return None: nothing lies in memory."""
        return None

    def name(self, place: Place) -> str:
        """Return a chunk's name in the hierarchy."""
        return self._index.key_of(place)

    def check_unchanged(self) -> None:
        """Do nothing: nothing is remembered of the objects that a read relies on."""

    def is_outdated(self) -> bool:
        """Return False: each request says what it wants."""
        return False

    def close(self) -> None:
        """Do nothing: connections are the process's."""

    def _load(self, place: Place) -> Bytes | None:
        key = self._index.key_of(place)
        part = self._store.whole(key, None if self._exact else self._limit)
        if part is None:
            return None
        subject = self._store.locate(key)
        if not part.size:
            raise DataError(subject, found="an empty file", expected="a stored chunk")
        if self._exact not in (None, part.size):
            raise DataError(subject, found=f"{part.size} bytes", expected=f"a stored chunk of {self._exact} bytes")
        self._index.learn(place, part.size)
        return part.data


class RemoteShards:
    """The inner chunks of a sharded array; safe to use from many threads at once.

    A shard's index is asked for once, by its place at the shard's end or start, which also tells the shard's size and
    version. Its chunks are then asked for in as few requests as `coalesce` allows, on the condition that the shard
    still has that version.

    Parameters
    ----------
    store
        Where the shards are.
    index
        Their names and what is in them.
    """

    def __init__(self, store: RemoteStore, index: ChunkIndex) -> None:
        self._store = store
        self._index = index

    @contextmanager
    def expect(self, places: Sequence[Place]) -> Iterator[Fetch]:
        """Fetch the chunks at `places` ahead, in this order; yields what hands them out."""
        pieces = [piece for piece in self._pieces(places) if piece is not None]

        def load(request: Get) -> Bytes:
            return self._load(request)

        with _flown(plan_requests(pieces), load) as fetch:
            yield fetch

    def fetch(self, place: Place) -> Fetched | None:
        """Return an inner chunk as stored, or None where its shard lacks it or there is no shard."""
        (piece,) = self._pieces([place])
        return None if piece is None else Fetched(self._load(Get(piece.key, piece.start, piece.stop, (piece,))))

    def fetch_part(self, place: Place, start: int, stop: int) -> Fetched | None:  # noqa: ARG002 - one request either way
        """Return an inner chunk, whole."""
        return self.fetch(place)

    def identify(self, places: Sequence[Place]) -> list[Identity | None]:
        """Tell inner chunks from all others, by the version of their shard; not where the storage tells no strong one.

        The version is the one that the index was read of: of a shard that was written again since, chunks that are
        kept are what this array was when it was opened, and others are refused.
        """
        divided = [self._index.divide(place) for place in places]
        self._index.look_up(outer for outer, _ in divided)
        return [self._identity(outer, inner) for outer, inner in divided]

    def _identity(self, outer: Place, inner: Place) -> Identity | None:
        facts = self._index.facts(outer)
        if facts is None or not (facts.is_strong and facts.is_settled):
            return None
        return Identity((self._store.locate(self._index.key_of(outer)), facts.version), inner)

    def locate(self, places: Sequence[Place]) -> Mapped | None:  # noqa: ARG002 - as of every source
        """Return None: nothing lies in memory."""
        return None

    def name(self, place: Place) -> str:
        """Return a chunk's name in the hierarchy; of a shard that is not there, the shard's."""
        outer, inner = self._index.divide(place)
        key = self._index.key_of(outer)
        return f"{key}, inner chunk {inner}" if self._index.look_up([outer])[outer] is not None else key

    def check_unchanged(self) -> None:
        """Do nothing: each request for chunks names the version that the index was read of."""

    def is_outdated(self) -> bool:
        """Return False: each request says what it wants."""
        return False

    def close(self) -> None:
        """Do nothing: connections are the process's."""

    def _pieces(self, places: Sequence[Place]) -> list[Piece | None]:
        """Return where chunks lie, None for those that are not there; reads the indices that are not known yet."""
        divided = [self._index.divide(place) for place in places]
        found = self._index.look_up(outer for outer, _ in divided)
        pieces: list[Piece | None] = []
        for place, (outer, inner) in zip(places, divided, strict=True):
            entries = found[outer]
            offset, length = (
                (ABSENT, ABSENT) if entries is None or isinstance(entries, int) else entries[inner].tolist()
            )
            is_there = not offset == length == ABSENT
            pieces.append(Piece(place, self._index.key_of(outer), offset, offset + length) if is_there else None)
        return pieces

    def _load(self, request: Get) -> Bytes:
        outer, _ = self._index.divide(request.pieces[0].place)
        return self._store.span(request.key, request.start, request.stop, self._index.version(outer))


@contextmanager
def _flown(groups: Sequence[tuple[Get, ...]], load: Load) -> Iterator[Fetch]:
    """Send the requests of one read; yields what hands out its chunks."""
    with Flight(groups, load) as flight:

        def fetch(place: Place) -> Fetched | None:
            data = flight.take(place)
            return None if data is None else Fetched(data)

        yield fetch
