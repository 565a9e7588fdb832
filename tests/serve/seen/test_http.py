"""What is seen of a service by HTTP, by whom: as a program sees it, and in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import voxload
from tests.serve.conftest import until
from tests.support import processes
from tests.support.settled import settle
from voxload.errors import UsageError
from voxload.serve.seen.history import Span
from voxload.serve.seen.page import page
from voxload.serve.seen.where import Where

pytestmark = pytest.mark.usefixtures("no_leaks")
ROOT = Path(__file__).parents[3]
PROGRAM = Path(sys.executable).parent / "voxload"


class Seen:
    """A service with a port."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        self.path = path
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        self.address = process.stderr.readline().split()[-1]
        self.root, _, self.token = self.address.partition("/?token=")

    def get(self, place: str, **headers: str) -> tuple[int, str]:
        """Return status and text of an answer."""
        try:
            with urlopen(Request(self.root + place, headers=headers), timeout=processes.LIMIT) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with closing(error):
                return error.code, error.read().decode()

    def known(self, place: str) -> str:
        """Return what who knows the token is told."""
        status, text = self.get(place, Authorization=f"Bearer {self.token}")
        assert status == 200
        return text


@pytest.fixture
def seen(path: Path) -> Iterator[Seen]:
    """Yield a service with a port."""
    command = [str(PROGRAM), "serve", "--memory", "1MiB", "--socket", str(path), "--http", "127.0.0.1:0"]
    with processes.started(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        yield Seen(process, path)


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Return a folder of samples."""
    folder = tmp_path / "samples"
    folder.mkdir()
    for number in range(4):
        np.save(folder / f"{number}.npy", np.full((1, 8, 8, 8), number, np.float32))
    settle(folder)
    return folder


def loaded(seen: Seen, samples: Path) -> voxload.DataLoader:
    """Return a loader that went through two epochs."""
    data = voxload.VolumeDataset(str(samples / "*.npy"), axes="CDHW")
    loader = voxload.DataLoader(data, num_workers=2, cache=voxload.Cache(service=seen.path))
    for _ in range(2):
        for _batch in loader:
            pass
    return loader


@pytest.mark.long
def test_strangers_are_told_whether_all_is_well(seen: Seen) -> None:
    """And nothing else, whatever they try."""
    assert seen.get("/health") == (200, "ok\n")
    assert seen.get("/ready") == (200, "ready\n")
    wrong = seen.token[:-1] + ("a" if seen.token[-1] != "a" else "b")
    for place in ("/", "/metrics", "/figures"):
        for headers in (
            {},
            {"Authorization": "Bearer"},
            {"Authorization": f"Bearer {wrong}"},
            {"Authorization": "Basic x"},
        ):
            status, text = seen.get(place, **headers)
            assert (status, text) == (401, "a token is asked for\n")
        assert seen.get(f"{place}?token={wrong}")[0] == 401
    assert seen.get("/../etc/passwd")[0] == 404
    for method in ("POST", "PUT", "DELETE"):
        request = Request(f"{seen.root}/?token={seen.token}", method=method, data=b"x")  # noqa: S310
        with pytest.raises(HTTPError) as refused:
            urlopen(request, timeout=processes.LIMIT)  # noqa: S310
        with closing(refused.value):
            assert refused.value.code == 405


@pytest.mark.long
def test_metrics_are_what_happened(seen: Seen, samples: Path) -> None:
    """As Prometheus's own parser reads them."""
    loader = loaded(seen, samples)
    loader.close()

    def hits() -> float:
        return float(sum(one.value for one in found("voxload_service_hits")))

    def found(name: str) -> list:  # type: ignore[type-arg]
        families = text_string_to_metric_families(seen.known("/metrics"))
        return next(list(family.samples) for family in families if family.name == name)

    until(lambda: hits() >= 8)  # what is fetched ahead for the next epoch counts, too
    assert sum(one.value for one in found("voxload_service_reads")) == 4
    assert {one.labels["level"] for one in found("voxload_service_used_bytes")} == {"memory", "disk"}
    figures = json.loads(seen.known("/figures"))
    (tenant,) = figures.values()
    assert tenant["jobs_met"]["hits"] >= 8


@pytest.mark.long
def test_a_unix_socket_asks_for_no_token(path: Path, tmp_path: Path) -> None:
    """Who gets there is its user; what is something else than a socket stays where it is."""
    place = tmp_path / "http" / "socket"
    command = [str(PROGRAM), "serve", "--memory", "1MiB", "--socket", str(path), "--http", str(place)]
    with processes.started(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        assert str(place) in process.stderr.readline()
        assert place.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(processes.LIMIT)
            connection.connect(str(place))
            connection.sendall(b"GET /figures HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            data = b"".join(iter(lambda: connection.recv(65536), b""))
        assert data.startswith(b"HTTP/1.1 200")
    place.unlink(missing_ok=True)
    place.write_text("mine")
    done = processes.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert place.read_text() == "mine"


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_page_in_a_real_browser(seen: Seen, samples: Path, tmp_path: Path) -> None:
    """With nothing from elsewhere, and all pictures drawn."""
    loader = loaded(seen, samples)
    until(lambda: "<polygon" in seen.known("/"))
    picture = tmp_path / "page.png"
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=900,1200",
        f"--user-data-dir={tmp_path}/profile",
    ]
    done = processes.run(
        [str(CHROMIUM), *options, f"--screenshot={picture}", "--dump-dom", seen.address],
        check=True,
        capture_output=True,
        text=True,
    )
    loader.close()
    assert picture.stat().st_size > 5000
    assert "Where blocks came from" in done.stdout
    assert len(re.findall("<svg", done.stdout)) >= 3
    assert not re.findall(r'(?:src|href)="(?!data:)', done.stdout)


def test_names_are_text(tmp_path: Path) -> None:
    """Whatever jobs call themselves."""
    name = '<script>alert("x")</script>\x1b[2J'
    job = {"name": name, "pid": 1, "session": 1, "hits": 1, "misses": 0, "ahead": 0, "stall_seconds": 0.1}
    level = {"capacity": 10, "limit": 10, "used": 5, "blocks": 1}
    kept = {"name": name, "there": 1, "blocks": 2, "bytes": 3}
    figures = {"memory": level, "disk": {"capacity": 0, "used": 0, "blocks": 0}, "jobs": [job], "kept": [kept]}
    spans = [Span(float(end), 1.0, (1.0, 2.0, 3.0, 4.0), 5.0, {name: 0.5}) for end in range(3)]
    found = page({name: figures}, {name: spans}, {})
    assert "<script" not in found
    assert "\x1b" not in found
    (tmp_path / "page.html").write_text(found)


@pytest.mark.parametrize("text", ["", "9640", ":9640", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999"])
def test_places_that_are_none(text: str) -> None:
    """Are refused."""
    with pytest.raises(UsageError, match="an address with its port, or a path"):
        Where.parse(text)
