"""Attachment: a client goes on without its service, whatever happens to that, and comes back to it by itself."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from signal import Signals
from typing import Any

import pytest

from tests.cache.two_users import A
from tests.serve.conftest import Service, Start, until
from tests.support import processes
from voxload.errors import DataError, NotFoundError, StorageError
from voxload.serve.attachment import Attached, Attachment
from voxload.serve.protocol.packets import PacketSocket

pytestmark = pytest.mark.usefixtures("no_leaks")
Changes = queue.Queue[Attached | None]
RELEASED = sorted((Path(__file__).parent / "protocol").glob("*.json"))
SAMPLES: dict[str, Any] = {"text": "x", "integer": 1, "number": 600.0, "texts": ["x"]}


@pytest.fixture
def changes() -> Changes:
    """Return what a client's changes are put into."""
    return queue.Queue()


@pytest.fixture
def told() -> Iterator[list[warnings.WarningMessage]]:
    """Yield the list of warnings, of all threads."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


def _next(changes: Changes) -> Attached | None:
    return changes.get(timeout=processes.LIMIT)


def test_a_session_from_begin_to_end(service: Service, changes: Changes) -> None:
    """The service knows it by name as long as it is open."""
    with closing(Attachment(service.path, name="train", changed=changes.put)) as client:
        assert client.session is not None
        assert _next(changes) == client.session
        (known,) = service.who()
        assert (known["number"], known["generation"], known["name"]) == (client.session.number, 1, "train")
        assert known["pid"] == os.getpid()
    until(lambda: service.who() == [])
    assert client.session is None


@pytest.mark.long
@pytest.mark.usefixtures("told")
def test_it_is_renewed(start: Start, changes: Changes) -> None:
    """Through many leases, by a client that does nothing else; on a machine that is too busy for that, begun anew."""
    service = start(lease=0.5)
    with closing(Attachment(service.path, changed=changes.put)):
        first = _next(changes)
        assert first is not None
        ends = service.who()[0]["ends"]
        until(lambda: [one for one in service.who() if one["ends"] > ends + 2 or one["number"] > first.number])


@pytest.mark.long
def test_a_killed_service_is_come_back_to(start: Start, told: list[warnings.WarningMessage], changes: Changes) -> None:
    """It is told once that it is gone; another one that listens there is found, twice."""
    service = start()
    with closing(Attachment(service.path, changed=changes.put)) as client:
        boots = {getattr(_next(changes), "boot", "")}
        for _ in range(2):
            service.send(Signals.SIGKILL)
            assert _next(changes) is None
            assert client.session is None
            service = start()
            session = _next(changes)
            assert session is not None
            boots.add(session.boot)
            until(lambda: client.session is not None)
            assert len(service.who()) == 1
    assert len(boots) == 3
    (warning,) = told
    assert f"service at {service.path}: " in str(warning.message)
    assert "blocks come from elsewhere, the run goes on; it is used again once it answers" in str(warning.message)


@pytest.mark.long
@pytest.mark.usefixtures("told")
def test_a_stopped_service(start: Start, changes: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not answer is done without; once it goes on, there is one session again, and no other is left."""
    service = start(lease=3.0)
    with closing(Attachment(service.path, changed=changes.put)) as client:
        first = _next(changes)
        service.send(Signals.SIGSTOP)
        monkeypatch.setattr("voxload.serve.attachment.PATIENCE", 0.2)
        assert _next(changes) is None
        service.send(Signals.SIGCONT)
        monkeypatch.setattr("voxload.serve.attachment.PATIENCE", processes.LIMIT)
        session = _next(changes)
        assert first is not None
        assert session is not None
        assert session.boot == first.boot
        until(lambda: [one["number"] for one in service.who()] == [getattr(client.session, "number", 0)])


def test_nobody_there(path: Path) -> None:
    """No socket, a socket that nobody listens at, and a file: an error says what to do."""
    with pytest.raises(NotFoundError, match="found nobody, expected a service that listens there; start one"):
        Attachment(path)
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
        left.bind(os.fspath(path))
    for _ in range(2):
        with pytest.raises(NotFoundError, match="found nobody"):
            Attachment(path)
        path.unlink()
        path.touch()


SERVICE = """
import json, os, sys
from pathlib import Path
import socket
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    for answer in json.loads(sys.argv[2]):
        heard = connection.recv(2**16)
        print(heard.decode(), flush=True)
        connection.send(answer.encode())
    if sys.argv[3] == "hang up":
        connection.close()
"""


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ("{", DataError, "packet: found"),
        ("[]", DataError, "expected a JSON object"),
        ('{"kind":"hello","first":1,"last":1,"build":""}', DataError, "message: found 'hello', expected one of"),
        (
            '{"kind":"renewed","boot":"","session":1,"generation":1,"lease":1}',
            DataError,
            "found renewed, expected welc",
        ),
        ('{"kind":"welcome","version":1}', DataError, "welcome.build: found nothing, expected text"),
        (
            '{"kind":"refused","reason":"not today","remedy":"come again"}',
            StorageError,
            "found not today, .*; come again",
        ),
    ],
)
def test_what_is_no_welcome(path: Path, answer: str, error: type[Exception], words: str) -> None:
    """Another language, another message, a refusal: an error of one line when a job begins."""
    path.parent.mkdir()
    command = [sys.executable, "-c", SERVICE, str(path), json.dumps([answer]), "hang up"]
    with processes.started(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == "ready\n"
        with pytest.raises(error, match=words):
            Attachment(path)


def _message(released: dict[str, Any], side: str, kind: str, *, is_full: bool) -> dict[str, Any]:
    """Return a message as a release would send it, with what it need not say or without."""
    named = {name: wanted.split() for name, wanted in released[side][kind].items()}
    return {"kind": kind, **{name: SAMPLES[words[0]] for name, words in named.items() if is_full or len(words) == 1}}


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("file", RELEASED, ids=lambda file: f"version {file.stem}")
def test_clients_of_each_release_are_served(service: Service, file: Path, is_full: bool) -> None:
    """They are answered as their own protocol has it."""
    released = json.loads(file.read_text())
    hello = _message(released, "client", "hello", is_full=is_full) | {"first": 1, "last": released["version"]}
    packets = PacketSocket.connect(os.fspath(service.path), processes.LIMIT)
    with closing(packets):
        packets.send(hello)
        welcome = packets.receive()
        assert welcome is not None
        _is_as_released(released, dict(welcome.words))
        assert welcome.words["version"] == released["version"]
        renew = {name: welcome.words[name] for name in released["client"]["renew"]}
        packets.send({"kind": "renew", **renew})
        renewed = packets.receive()
        assert renewed is not None
        _is_as_released(released, dict(renewed.words))


def _is_as_released(released: dict[str, Any], words: dict[str, Any]) -> None:
    kinds: dict[str, Any] = {"text": str, "integer": int, "number": (int, float), "texts": list}
    for name, wanted in released["service"][words["kind"]].items():
        named = wanted.split()
        assert name in words or len(named) > 1
        assert name not in words or isinstance(words[name], kinds[named[0]])


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("file", RELEASED, ids=lambda file: f"version {file.stem}")
def test_services_of_each_release_are_used(path: Path, file: Path, is_full: bool) -> None:
    """A client of today says what they need, and takes their answers."""
    released = json.loads(file.read_text())
    answers = [_message(released, "service", kind, is_full=is_full) for kind in ("welcome", "renewed")]
    answers[0] |= {"version": released["version"], "boot": "b", "lease": 0.1}
    path.parent.mkdir()
    command = [sys.executable, "-c", SERVICE, str(path), json.dumps([json.dumps(one) for one in answers]), "stay"]
    with processes.started(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == "ready\n"
        with closing(Attachment(path)) as client:
            assert client.session == Attached("b", 1, 1)
            for kind in ("hello", "renew"):
                said = json.loads(service.stdout.readline())
                assert said["kind"] == kind
                assert said.keys() >= {name for name, words in released["client"][kind].items() if " " not in words}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_the_service_of_another_user() -> None:
    """It is not believed, whatever it says: it might make anything up."""
    welcome = {"kind": "welcome", "version": 1, "build": "", "boot": "b", "session": 1, "generation": 1, "lease": 60}
    script = SERVICE.replace("listener =", f"os.setuid({A})\nlistener =", 1)
    with tempfile.TemporaryDirectory() as folder:  # into which others come, as into no folder of pytest's
        Path(folder).chmod(0o777)
        path = Path(folder) / "socket"
        command = [sys.executable, "-c", script, str(path), json.dumps([json.dumps(welcome)]), "hang up"]
        with processes.started(command, stdout=subprocess.PIPE, text=True) as service:
            assert service.stdout is not None
            assert service.stdout.readline() == "ready\n"
            with pytest.raises(StorageError, match=f"found a service of user {A}, expected one of this user's"):
                Attachment(path)


FORKED = """
import os, sys
from pathlib import Path
from voxload.serve.attachment import Attachment
client = Attachment(Path(sys.argv[1]))
child = os.fork()
if not child:
    os._exit(3 if client.session is None else 4)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
assert client.session is not None
client.close()
"""


def test_a_fork_has_no_session(service: Service) -> None:
    """It does not speak for its parent, whose session goes on."""
    processes.run([sys.executable, "-W", "ignore", "-c", FORKED, str(service.path)])
    until(lambda: service.who() == [])
