"""One rank of those whose epochs are reordered: runs, runs that go on elsewhere, and what is refused, as JSON.

FOLDER BLOCKS: of samples, and how many ranks share one.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import voxload
from tests.loader.caching.dealt_world import SAMPLES, Epochs, Life, epochs, refused
from tests.loader.caching.shared_faults import shared_tiers

EPOCHS = 8
RUN = Life("run", memory=8, policy="lru", epochs=EPOCHS, lengths=(None,) * (EPOCHS + 1))
"""One epoch more than there were said to be."""
CLAIRVOYANT = Life("clairvoyant", memory=5, epochs=EPOCHS, lengths=(None,) * EPOCHS)
LEFT = Life("left", memory=8, policy="lru", epochs=EPOCHS, lengths=(None, 2, None, 1, None, None, None, None))


def main(folder: Path, blocks: int) -> None:
    """Run everything."""
    faulthandler.dump_traceback_later(120, exit=True)  # one that hangs says where
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    grid = voxload.ProcessGrid.from_env((blocks, 1, 1))
    data = voxload.VolumeDataset(f"{folder}/*.npy", grid=grid)
    found: dict[str, Any] = {"rank": grid.rank, "group": grid.group, "plain": RUN.plain(data)}
    for life in (RUN, CLAIRVOYANT, LEFT):
        loader = life.loader(data, "epochs")
        found[life.name] = epochs(loader, data, life)
        found[f"{life.name} shuffles"] = list(loader.sampler.shuffles)  # type: ignore[attr-defined] # a GroupSampler
        found[f"{life.name} sources"] = {kind: one.nbytes for kind, one in loader.stats().sources.items()}
        line = shared_tiers(loader).line
        found["line"] = {"sizes": line.sizes.tolist(), "block": data.layout(0)[0].nbytes}
        found[f"{life.name} rooms"] = [room.memory for room in line.rooms]
        loader.close()
    assert len(data) == SAMPLES
    found["resumed"] = {name: resumed(data, name) for name in ("half-way", "between", "without", "same")}
    found["late"] = late(data)
    loader = RUN.loader(data, "epochs")
    found["chosen"] = epochs(loader, data, Life("", lengths=(None,) * 3, chosen=(0, 3, 0)))
    loader.close()
    found["refused"] = refusals(data)
    data.close()
    # One write a rank: the parent reads whole lines.
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


def resumed(data: voxload.VolumeDataset, name: str) -> Epochs:
    """Return the epochs of a run that goes on elsewhere: in its third epoch, or behind its second."""
    first = RUN.loader(data, "epochs")
    found = epochs(first, data, Life("", lengths=(None, None) if name == "between" else (None, None, 2)))
    state = json.loads(json.dumps(first.state_dict()))
    if name == "same":
        epochs(first, data, Life("", lengths=(None,)))
    else:
        first.close()
    # With the order in the state, the option is not needed to go on in it.
    second = first if name == "same" else RUN.loader(data, None if name == "without" else "epochs")
    second.load_state_dict(state)
    rest = epochs(second, data, Life("", lengths=(None,) * (EPOCHS + 1 - 2)))
    second.close()
    return found + rest if name == "between" else [*found[:2], found[2] + rest[0], *rest[1:]]


def late(data: voxload.VolumeDataset) -> Epochs:
    """Return the epochs of a run that is reordered from within its third one on: those before keep their own."""
    first = RUN.loader(data, None)
    found = epochs(first, data, Life("", lengths=(None, None, 2)))
    state = first.state_dict()
    first.close()
    second = RUN.loader(data, "epochs")
    second.load_state_dict(state)
    rest = epochs(second, data, Life("", lengths=(None,) * (EPOCHS - 2)))
    second.close()
    return [*found[:2], found[2] + rest[0], *rest[1:]]


def refusals(data: voxload.VolumeDataset) -> dict[str, str]:
    """Return what is said of what cannot be reordered."""

    def begun(loader: voxload.DataLoader) -> None:
        try:
            next(iter(loader))
        finally:
            loader.close()

    rank = dist.get_rank()
    found = {
        "torch's sampler": refused(lambda: begun(Life("", is_torchs=True, epochs=3).loader(data, "epochs"))),
        "other epochs": refused(lambda: begun(Life("", epochs=5 + rank).loader(data, "epochs"))),
        "in order": refused(lambda: begun(Life("", epochs=3, words={"shuffle": False}).loader(data, "epochs"))),
    }
    reordered = RUN.loader(data, "epochs")
    epochs(reordered, data, Life("", lengths=(1,)))
    state = reordered.state_dict()
    reordered.close()
    torchs = Life("", is_torchs=True).loader(data, None)
    found["another sampler"] = refused(lambda: torchs.load_state_dict(state))
    shuffles = state["order"]["shuffles"]
    for name, wrong in {"twice": [*shuffles[:-1], shuffles[0]], "no numbers": "01", "half": [0.0, 1.0]}.items():
        broken = {**state, "order": {**state["order"], "shuffles": wrong}}
        found[name] = refused(lambda broken=broken: reordered.load_state_dict(broken))  # type: ignore[misc]
    torchs.close()
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
