"""Part: all tests marked ``gpu``, on the device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from bench.harness.script import ROOT
from bench.proving.told import Setting, Teller

_FAILED = ("failure", "error")
_MARK = "pytest.mark.gpu"
_ENDED = (0, 1)
"""Statuses of pytest when all tests have run."""
_EARLIER = 10.0
"""Seconds before the part's limit at which pytest is told to stop, so that it says what has failed until then."""


def prove_tests(setting: Setting, tell: Teller) -> None:
    """Run them, and say how many failed; each one's outcome is a detail."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = ["-m", "gpu", "-v", "--tb=short", "--durations=10", f"--junitxml={report}"]
        # Warnings of libraries are errors where their versions are pinned, in `make test`: here are others.
        words += ["-p", "no:cacheprovider", "-W", "default"]
        command = [sys.executable, "-m", "pytest", *words]
        # One thread compiles: inductor would keep processes for it, and tests end what is left behind.
        environ = os.environ | {"VOXLOAD_TEST_DEVICE": setting.device, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        status = _run([*command, *marked_files()], environ, setting.limit - _EARLIER)
        if not report.exists():
            raise RuntimeError(f"pytest ended with status {status} and wrote no report")
        outcomes = read_outcomes(report)
    ended = list(outcomes.values())
    if not ended:
        raise RuntimeError("pytest found no test marked gpu")
    tell.detail("tests", outcomes)
    failures = sum(outcome.startswith("failed") for outcome in ended)
    if status in _ENDED or failures:
        tell.figures("tests marked gpu: failures", failures)
    if status not in _ENDED:
        raise RuntimeError(f"pytest ended with status {status} after {len(ended)} tests")
    tell.figures("tests marked gpu: passed", ended.count("passed"))


def _run(command: list[str], environ: dict[str, str], seconds: float) -> int:
    """Run a process, interrupted after so many seconds; return its status."""
    with subprocess.Popen(command, cwd=ROOT, env=environ) as process:
        try:
            return process.wait(timeout=max(seconds, 1.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            return process.wait()


def marked_files() -> list[str]:
    """Return the files of tests that have the mark: others may need what is not installed, and are not imported."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if _MARK in path.read_text(encoding="utf-8")]


def read_outcomes(report: Path) -> dict[str, str]:
    """Return what became of each test by its name: ``passed``, or ``failed`` or ``skipped`` and why."""
    found = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - what our own process wrote
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        outcome = "passed"
        for child in case:
            if child.tag in _FAILED:
                outcome = f"failed: {_line(child)}"
            elif child.tag == "skipped":
                outcome = f"skipped: {_line(child)}"
        found[name] = outcome
    return found


def _line(element: ET.Element) -> str:
    return next(iter((element.get("message") or "").strip().splitlines()), "no message")
