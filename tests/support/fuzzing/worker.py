"""Worker: what a watched process does with the inputs that it is given."""

from __future__ import annotations

import json
import os
import resource
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from tests.support.fuzzing.doors import Door
from tests.support.fuzzing.mutations import Mutation, draw
from tests.support.fuzzing.outcomes import BY_CLASS, Outcome
from tests.support.fuzzing.targets import EXTENT, Target, is_right
from voxload.errors import VoxloadError

_SMALL = 2**22
"""Datasets up to this size h5py reads whole, and of others a corner; as `doors` does."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is fuzzed, and within which limits."""

    targets: list[Target]
    seed: int
    memory: int
    """Bytes that reading may allocate."""
    seconds: float
    """Longest time for one input."""
    door: Door
    """What is done with each."""

    def target(self, index: int) -> Target:
        """Return the volume that input `index` damages."""
        return self.targets[index % len(self.targets)]

    def draw(self, index: int) -> Mutation:
        """Return the damage of input `index`: the same in every run with this seed."""
        return draw(self.target(index), np.random.default_rng([self.seed, index]))


def work(plan: Plan, indices: Iterable[int], folder: Path, pipe: int) -> None:
    """Take inputs; say on `pipe`, a JSON line each, when one is begun and what came of it."""
    warnings.simplefilter("ignore")
    check_sound(plan, folder)  # what is loaded and started once is no part of the bound
    limit(plan.memory)
    for index in indices:
        target, mutation = plan.target(index), plan.draw(index)
        victim = folder / str(index % len(plan.targets)) / mutation.file.name
        _say(pipe, {"index": index})
        _replace(victim, mutation.data)
        outcome, detail = judge(plan.door, target, folder / str(index % len(plan.targets)), mutation)
        _replace(victim, mutation.file.data)
        _say(pipe, {"index": index, "outcome": outcome.name, "detail": detail[:300]})


def check_sound(plan: Plan, folder: Path) -> None:
    """Raise unless every volume comes out right as it is."""
    for number, target in enumerate(plan.targets):
        target.write(folder / str(number))
        if not is_right(plan.door(target, folder / str(number))):
            raise ValueError(f"{target.name} does not come out right")


def limit(extra: int) -> None:
    """Let this process allocate no more than `extra` bytes from now on; maps of files do not count."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    most = int(fields["VmData"].split()[0]) * 1024 + extra
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def judge(door: Door, target: Target, folder: Path, mutation: Mutation) -> tuple[Outcome, str]:
    """Read a volume and say what came of it."""
    try:
        found = door(target, folder)
    except MemoryError as error:
        return Outcome.MEMORY, repr(error)
    except VoxloadError as error:
        if isinstance(error.__cause__, MemoryError):
            return Outcome.MEMORY, str(error)
        return BY_CLASS[type(error).__name__], str(error)
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return Outcome.FOREIGN, repr(error)
    if is_right(found):
        return Outcome.RIGHT, ""
    return (Outcome.SILENT if mutation.is_covered else Outcome.UNCOVERED), f"{found.dtype} {found.shape}"


def read_with_h5py(path: str, dataset: str) -> None:
    """Do with h5py alone what a reader asks of libhdf5, and read all."""
    with h5py.File(path, "r") as file:
        item = file[dataset]
        if item.chunks:
            item.id.chunk_iter(lambda _chunk: None)
        if item.nbytes <= _SMALL:
            item[...]
        else:
            item[tuple(slice(0, EXTENT) for _ in item.shape)]


def _replace(path: Path, data: bytes) -> None:
    """Write a new file in the place of the old one: what readers remember of that one is none of it."""
    fresh = path.with_name(f"{path.name}.fresh")
    fresh.write_bytes(data)
    fresh.replace(path)


def _say(pipe: int, words: dict[str, object]) -> None:
    os.write(pipe, (json.dumps(words) + "\n").encode())
