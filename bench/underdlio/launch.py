"""DLIO's runs: its own command line in an interpreter that has it, alone or under mpiexec."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLUGIN = "voxload.benchmark.dlio.loader.VoxloadDataLoader"
TIMEOUT = 1800
"""Seconds for a run."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python with dlio_benchmark and voxload installed."""

    path: Path

    def command(self, ranks: int) -> list[str]:
        """Return what starts DLIO; raises FileNotFoundError when a program is not installed beside the interpreter."""
        programs = [self._beside("dlio_benchmark")]
        if ranks > 1:
            programs = [self._beside("mpiexec"), "-n", str(ranks), *programs]
        return programs

    def _beside(self, name: str) -> str:
        found = shutil.which(name, path=os.fspath(self.path.parent)) or shutil.which(name)
        if found is None:
            raise FileNotFoundError(f"{name} is neither beside {self.path} nor on the path")
        return found


@dataclass(frozen=True, slots=True)
class Run:
    """One run of DLIO."""

    workload: str
    """Name of a workload file."""
    words: Mapping[str, Any]
    """What of the workload is said otherwise, by dotted name below ``workload``."""
    ranks: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the plug-in."""


class DlioError(RuntimeError):
    """DLIO ended with an error; the message has the end of what it printed."""


def launch(interpreter: Interpreter, run: Run, folder: Path, *, output: str) -> Path:
    """Run DLIO in `folder` and return its output folder there; raises DlioError when it fails."""
    words = {"output.folder": output, **run.words}
    command = [
        *interpreter.command(run.ranks),
        "hydra.searchpath=[pkg://voxload.benchmark.dlio]",
        f"workload={run.workload}",
        *(f"++workload.{name}={_said(value)}" for name, value in words.items()),
    ]
    environ = os.environ | {"HYDRA_FULL_ERROR": "1", "TF_CPP_MIN_LOG_LEVEL": "3"} | dict(run.options)
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if done.returncode:
        raise DlioError(f"{' '.join(command)}: exit status {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return folder / output


def generate(interpreter: Interpreter, run: Run, folder: Path) -> None:
    """Let one process write the files of a run; raises DlioError when it fails."""
    words = {**run.words, "workflow.generate_data": True, "workflow.train": False}
    launch(interpreter, Run(run.workload, words), folder, output="generated")


def summary(output: Path) -> dict[str, Any]:
    """Return the metrics that DLIO wrote."""
    found: dict[str, Any] = json.loads((output / "summary.json").read_text(encoding="utf-8"))["metric"]
    return found


def _said(value: Any) -> str:
    """Return a value as Hydra's command line has it."""
    return "null" if value is None else str(value)
