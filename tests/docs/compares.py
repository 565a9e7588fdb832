"""Runs programs of a guide in this folder and tells, as JSON, whether their loaders give the same batches.

Cases come as JSON on standard input, by name: programs, rank, world and epochs. The batches of a case's last program
are written to the file that is called by the case's name.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch


def copied(batch: Any) -> Any:
    """Return a copy of a batch as plain lists and dictionaries: some loaders fill its memory again."""
    if isinstance(batch, torch.Tensor):
        return batch.clone().as_subclass(torch.Tensor)
    if isinstance(batch, Mapping):
        return {key: copied(value) for key, value in batch.items()}
    return [copied(value) for value in batch]


def are_equal(one: Any, other: Any) -> bool:
    """Tell whether two copies have the same types and the same bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        same = (one.dtype, one.shape) == (other.dtype, other.shape)
        return same and one.numpy().tobytes() == other.numpy().tobytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(are_equal(one[key], other[key]) for key in one)
    return len(one) == len(other) and all(are_equal(*pair) for pair in zip(one, other, strict=True))


def epochs_of(program: str, epochs: int) -> list[Any]:
    """Return all batches of a program's loader, by epoch; one that can be gone through once has one."""
    loader = runpy.run_path(program)["loader"]
    if hasattr(loader, "__next__"):
        return [[copied(batch) for batch in loader]]
    found = [[copied(batch) for batch in loader] for _ in range(epochs)]
    if hasattr(loader, "close"):
        loader.close()
    return found


def compare(programs: Sequence[str], *, rank: int, world: int, epochs: int) -> tuple[dict[str, Any], list[Any]]:
    """Run programs as a rank of a world that torchrun would have made; return what is told, and the last batches."""
    for name, value in (("RANK", rank), ("WORLD_SIZE", world)):
        os.environ.pop(name, None)
        if world > 1:
            os.environ[name] = str(value)
    found = [epochs_of(program, epochs) for program in programs]
    told = {
        "same": all(are_equal(one, found[0]) for one in found),
        "epochs differ": len(found[0]) > 1 and not are_equal(found[0][0], found[0][1]),
        "batches": sum(map(len, found[0])),
    }
    return told, found[-1]


def main() -> None:
    """Go through all cases."""
    torch.set_num_threads(1)
    told = {}
    for name, case in json.load(sys.stdin).items():
        told[name], batches = compare(**case)
        torch.save(batches, f"{name}.pt")
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
