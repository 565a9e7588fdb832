"""Keeper: what clients say of blocks and orders, by packets that nobody who means well would send too."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.conftest import Service, Start, until
from tests.serve.talking import client_of, content, expected, octant
from tests.support.settled import settle
from voxload.data.layout import FieldLayout
from voxload.geometry import Box
from voxload.readers.protocol import Location
from voxload.serve.protocol.blocktable import MOST, table, unit_of

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def service(start: Start) -> Service:
    """Return a service that keeps blocks."""
    found = start(memory=2**20)
    assert found.said == "ready"
    return found


def test_what_is_wanted_and_what_is_foreseen_comes(service: Service, volume: Path) -> None:
    """Into memory that the client maps; each once, for two clients that name them in other orders."""
    blocks = [octant(volume, number) for number in range(8)]
    with client_of(service) as client, client_of(service) as other:
        client.name(*blocks[:4])
        assert client.want(2) == {"kind": "there", "block": 2}
        found = content(client, blocks[2])
        assert found is not None
        np.testing.assert_array_equal(found, expected(volume, blocks[2]))
        other.name(*reversed(blocks))
        other.order(*range(8))
        for number in range(8):
            assert other.want(number) == {"kind": "there", "block": number}
        client.name(*blocks[4:])
        for number, block in enumerate(blocks):
            assert client.want(number) == {"kind": "there", "block": number}
            found = content(client, block)
            assert found is not None
            np.testing.assert_array_equal(found, expected(volume, block))
        assert service.figures()["reads"]["done"] == 8
    until(lambda: service.figures()["jobs"] == [])
    assert service.figures()["memory"]["blocks"] == 8


@pytest.mark.long
def test_a_file_that_was_written_anew(service: Service, volume: Path) -> None:
    """Who does not find what is there says so, and then has what is stored now."""
    block = octant(volume, 3)
    with client_of(service) as client:
        client.name(block)
        assert client.want(0)["kind"] == "there"
        np.save(volume, -np.load(volume))
        settle(volume)
        assert content(client, block) is None
        assert client.want(0) == {"kind": "there", "block": 0}
        assert content(client, block) is None
        assert client.want(0, again=1) == {"kind": "there", "block": 0}
        found = content(client, block)
        assert found is not None
        np.testing.assert_array_equal(found, expected(volume, block))
        assert service.figures()["reads"]["done"] == 2
        assert client.want(0, again=1) == {"kind": "there", "block": 0}
        assert service.figures()["reads"]["done"] == 2


@pytest.mark.long
def test_what_cannot_be_had(service: Service, volume: Path) -> None:
    """A file that is not there, is another one, too large or not as was said: nothing is kept, and all is told."""
    layout = FieldLayout((2, 4, 4, 4), np.dtype(np.int16))
    far = Box((0, 0, 0), (64, 64, 64))
    wrong = [
        octant(volume, 0, location=Location(str(volume) + ".gone")),
        octant(volume, 0, location=Location("/dev/null")),
        octant(volume, 0, location=Location(str(volume.parent))),
        octant(volume, 0, layout=layout),
        octant(volume, 0, layout=FieldLayout((2, 4, 4, 5), np.dtype(np.int32))),
        octant(volume, 0, box=far, layout=FieldLayout((2, *far.shape), np.dtype(np.int32))),
    ]
    with client_of(service) as client:
        client.name(*wrong, octant(volume, 1))
        client.order(*range(7), *range(7))
        for number in range(6):
            assert client.want(number) == {"kind": "unavailable", "block": number}
        assert client.want(6) == {"kind": "there", "block": 6}
        assert service.figures()["memory"]["blocks"] == 1


@pytest.mark.long
def test_lines_that_lie_about_their_size(service: Service, volume: Path) -> None:
    """The size beside a line decides about room; a line that says another is refused when it is looked at."""
    block = octant(volume, 0)
    with client_of(service) as client:
        client.say(np.array([4], "<i8").tobytes() + table([block])[8:], kind="blocks", count=1)
        assert client.want(0) == {"kind": "unavailable", "block": 0}
        assert service.figures()["memory"]["blocks"] == 0


@pytest.mark.long
def test_more_than_there_is_room_for(start: Start, volume: Path) -> None:
    """Comes all the same, one after the other."""
    blocks = [octant(volume, number) for number in range(8)]
    service = start(memory=14 * 1024)
    with client_of(service) as client:
        client.name(*blocks)
        client.order(*range(8))
        for number, block in enumerate(blocks):
            for attempt in range(9):
                assert client.want(number, again=int(attempt > 0)) == {"kind": "there", "block": number}
                found = content(client, block)
                if found is not None:
                    break
            assert found is not None
            np.testing.assert_array_equal(found, expected(volume, block))
            client.say(kind="reached", place=number + 1)
        figures = service.figures()
        assert figures["memory"]["dropped"] > 0
        assert figures["memory"]["used"] <= figures["memory"]["capacity"] == 14 * 1024


NOTHING = b""


NONSENSE: list[tuple[bytes | None, dict[str, Any], str]] = [
    (None, {"kind": "blocks", "count": 1}, "message: found 0 descriptors, expected one"),
    (NOTHING, {"kind": "blocks", "count": 1}, "block table: found 0 bytes"),
    (b"x" * 100, {"kind": "blocks", "count": 2}, "block table: found 100 bytes, 0 lines, expected 2 blocks"),
    (b"\0" * 8 + b"{}\n", {"kind": "blocks", "count": 1}, "block table: found a block of 0 bytes"),
    (NOTHING, {"kind": "blocks", "count": MOST + 1}, f"blocks: found {MOST + 1}, expected 1 to {MOST}"),
    (NOTHING, {"kind": "blocks", "count": -1}, "blocks: found -1"),
    (NOTHING, {"kind": "order", "place": 0, "count": 1}, "order: found 0 bytes, expected 1 uses"),
    (b"\0" * 16, {"kind": "order", "place": 0, "count": 1}, "order: found 16 bytes, expected at most 8"),
    (b"\1" + b"\0" * 7, {"kind": "order", "place": 0, "count": 1}, "order: found blocks 1 to 1, expected 0 to 0"),
    (b"\xff" * 8, {"kind": "order", "place": 0, "count": 1}, "order: found blocks -1 to -1"),
    (b"\0" * 8, {"kind": "order", "place": 1, "count": 1}, "order: found 1 uses from 1 on"),
    (NOTHING, {"kind": "order", "place": 0, "count": 2**40}, "order: found 1099511627776 uses"),
    (None, {"kind": "reached", "place": 1}, "reached: found 1, expected 0 to 0"),
    (None, {"kind": "reached", "place": -1}, "reached: found -1"),
    (None, {"kind": "want", "block": 1}, "want: found block 1, expected 0 to 0"),
    (None, {"kind": "want", "block": -1}, "want: found block -1"),
]


@pytest.mark.long
def test_nonsense_is_sent_away(service: Service, volume: Path) -> None:
    """With the reason; the others are served, and no descriptor is left."""
    with client_of(service) as other:
        other.name(octant(volume, 1))
        before = service.descriptors()
        for data, words, reason in NONSENSE:
            with client_of(service) as client:
                client.name(octant(volume, 0))
                client.say(data, **words)
                said = client.hear()
                assert said["kind"] == "refused"
                assert reason in said["reason"]
                assert client.hear() == {}
        until(lambda: service.descriptors() == before)
        assert other.want(0) == {"kind": "there", "block": 0}


@pytest.mark.long
def test_who_never_hears_the_answers(service: Service, volume: Path) -> None:
    """Is sent away when the system keeps no more for it; others are served."""
    with client_of(service) as client, client_of(service) as other:
        client.name(octant(volume, 0))
        other.name(octant(volume, 0))
        wants = iter(lambda: client.say(kind="want", block=0), "never")
        with pytest.raises(OSError, match=r"pipe|reset"):
            deque(wants, maxlen=0)
        assert other.want(0) == {"kind": "there", "block": 0}
        until(lambda: len(service.who()) == 1)


@pytest.mark.long
def test_a_client_that_goes_takes_what_only_it_named(service: Service, volume: Path) -> None:
    """Of a thousand clients that name other blocks nothing is left but what is kept."""
    for number in range(20):
        with client_of(service) as client:
            client.name(*(octant(volume, 0, location=Location(f"{volume}.{number}.{one}")) for one in range(50)))
            assert client.want(0)["kind"] == "unavailable"
    until(lambda: service.figures()["jobs"] == [])
    assert service.figures()["blocks_known"] == 0


def test_keys_are_the_same_for_all() -> None:
    """Whatever a job calls a sample or a field."""
    block = octant(Path("a"), 0)
    assert unit_of(block).fields == ("",)
    assert unit_of(block).sample == ""
