"""``reads_catalog.py FOLDER``: follow a catalogue until standard input ends; print the generations that were seen."""

from __future__ import annotations

import select
import sys

import voxload


def main() -> None:
    """Check each generation: samples stay where they are, and those that are new have their own voxels and target."""
    data = voxload.VolumeDataset(sys.argv[1], targets="t", follow=True)
    seen, known = [], list[str]()
    while True:
        is_over = bool(select.select([sys.stdin], [], [], 0)[0])  # looked at first: the last generation is read, too
        seen.append(data.refresh())
        ids = list(data.sample_ids)
        if ids[: len(known)] != known:
            raise AssertionError(f"generation {seen[-1]}: samples that were there are others")
        for index in range(len(known), len(ids)):
            volume, target = data[index]
            number = int(ids[index].rpartition("-")[2])
            if target.tolist() != [number] or not bool((volume == number).all()):
                raise AssertionError(f"generation {seen[-1]}: sample {ids[index]!r} is {target.tolist()}")
        known = ids
        if is_over:
            break
    if seen != sorted(seen):
        raise AssertionError("a generation behind one that was seen")
    sys.stdout.write(f"{len(set(seen))} {seen[-1]}\n")


if __name__ == "__main__":
    main()
