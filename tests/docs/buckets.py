"""S3 for pages that speak of it, as moto serves it: one bucket, with what lies in a folder."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

NAME = "bucket"
"""Of the one bucket."""
_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@contextmanager
def bucket_of(folder: Path) -> Iterator[dict[str, str]]:
    """Serve a copy of a folder as `s3://bucket/` on the loopback interface; give the variables that say so."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - takes a second

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        _put(f"{endpoint}/{NAME}", b"")
        for path in folder.rglob("*"):
            if path.is_file():
                _put(f"{endpoint}/{NAME}/{quote(path.relative_to(folder).as_posix())}", path.read_bytes())
        yield {**_SETTINGS, "AWS_ENDPOINT_URL": endpoint}
    finally:
        server.stop()


def _put(url: str, data: bytes) -> None:
    # Without a type, urllib calls it a form, which moto waits for in vain; without a user, moto refuses it.
    who = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"
    headers = {"Content-Type": "application/octet-stream", "Authorization": who}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method="PUT")):  # noqa: S310 - the loopback
        pass
