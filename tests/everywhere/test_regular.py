"""Pipes and devices given for files: every command refuses them at once and says what they are."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support import processes

ROOT = Path(__file__).parents[2]
SCRIPT = """
import contextlib, io, json, sys
from voxload.cli.main import run
for command in json.loads(sys.stdin.read()):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = run(command)
    print(json.dumps([status, said.getvalue()]), flush=True)
"""
COMMANDS = {
    "info": "info PIPE",
    "info of a device": "info /dev/zero",
    "info of a catalogue": "info PIPE.parquet",
    "convert": "convert PIPE OUT",
    "convert of a device": "convert /dev/zero OUT",
    "targets in CSV": "convert RAW OUT --targets PIPE.csv",
    "targets in JSON": "convert RAW OUT --targets PIPE.json",
    "targets in Parquet": "convert RAW OUT --targets PIPE.parquet",
    "a scheduler's file": "convert RAW OUT --scheduler PIPE",
    "verify": "verify PIPE.parquet",
    "catalog list": "catalog list PIPE.parquet",
    "catalog merge": "catalog merge OUT.parquet PIPE.parquet PIPE.parquet",
    "bench report": "bench report PIPE",
    "bench compare": "bench compare PIPE PIPE",
    "simulate": "simulate --machine PIPE.toml",
    "infer": "infer RAW --checkpoint RUN",
}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Run all commands in one process; none may wait for a writer that never comes."""
    folder = tmp_path_factory.mktemp("pipes")
    for suffix in ("", ".parquet", ".csv", ".json", ".toml"):
        os.mkfifo(folder / f"pipe{suffix}")
    (folder / "run").mkdir()
    os.mkfifo(folder / "run/checkpoint.pt")
    (folder / "raw").mkdir()
    np.save(folder / "raw/cube.npy", np.zeros((8, 8, 8), np.float32))
    words = {"PIPE": "pipe", "OUT": "out", "RAW": "raw", "RUN": "run"}

    def said(command: str) -> list[str]:
        for word, name in words.items():
            command = command.replace(word, str(folder / name))
        return command.split()

    given = json.dumps([said(command) for command in COMMANDS.values()])
    done = processes.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, input=given)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: (status, text) for name, (status, text) in zip(COMMANDS, lines, strict=True)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_or_device_is_refused(name: str, answered: dict[str, tuple[int, str]]) -> None:
    """Opening it would wait for ever, or read for ever."""
    status, text = answered[name]
    assert status == 2
    assert ("found a device" if "device" in name else "found a named pipe") in text
    assert "write the data to a file and name that" in text
