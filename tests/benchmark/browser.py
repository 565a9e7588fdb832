"""A headless Chromium, spoken to over a pipe in the DevTools protocol: no driver, no port, no network."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any, Self

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
"""The program, where it is installed."""
_SECONDS = 60
"""How long an answer may take."""
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """One page of a browser; use as a context manager."""

    def __init__(self, profile: Path) -> None:
        if CHROMIUM is None:
            raise FileNotFoundError("chromium")
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # The browser reads file descriptor 3 and writes 4; both must exist before it begins.
        rename = f'exec "$@" 3<&{commands} 4>&{answers}'
        call = ["bash", "-c", rename, "bash", CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(call, pass_fds=(commands, answers), stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._rest = b""
        self._session = ""
        self.events: list[dict[str, Any]] = []
        """What the page told by itself, in order."""

    def __enter__(self) -> Self:
        pages = [found for found in self._call("Target.getTargets")["targetInfos"] if found["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._session = ""
            self._send("Browser.close")
            self._process.wait(timeout=_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._write)
            os.close(self._read)

    def open(self, path: Path, *, width: int, dark: bool = False) -> None:
        """Show a file at a width in CSS pixels, and forget what the page before it told."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self._call("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def evaluate(self, script: str) -> Any:
        """Return what a script in the page comes to, as plain values."""
        return self._call("Runtime.evaluate", expression=script, returnByValue=True)["result"]["value"]

    def screenshot(self, path: Path) -> None:
        """Write the whole page as a PNG file."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **values: Any) -> dict[str, Any]:
        number = self._send(method, **values)
        while True:
            message = self._receive()
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result

    def _send(self, method: str, **values: Any) -> int:
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": values} | session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self._number

    def _receive(self) -> dict[str, Any]:
        """Return the next message; one that is no answer is kept as an event."""
        while b"\0" not in self._rest:
            if not select([self._read], [], [], _SECONDS)[0]:
                raise TimeoutError(f"no word from {CHROMIUM} in {_SECONDS} s")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise ConnectionError(f"{CHROMIUM} ended by itself")
            self._rest += part
        text, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message
