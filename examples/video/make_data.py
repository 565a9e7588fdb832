"""Make clips of a ball that falls, rises, swings or rolls: MP4 files and classes in tar shards of WebDataset's layout.

python examples/video/make_data.py clips

Single frames do not tell falling from rising: a network has to see the motion. Frames are taken 25 times a second, and
gravity, colours, sizes and starts differ from clip to clip.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

FRAMES, HEIGHT, WIDTH = 16, 48, 64
RATE = 25
"""Frames a second."""
Path2D = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Height and place across of a ball by frame, in pixels from the top left."""
TIMES = np.arange(FRAMES) / RATE


def falls(random: np.random.Generator) -> Path2D:
    """Return a path that gravity makes."""
    return 6 + random.uniform(120, 180) * TIMES**2 / 2, random.uniform(15, 50) + random.uniform(-15, 15) * TIMES


def rises(random: np.random.Generator) -> Path2D:
    """Return such a path backwards: a ball that was thrown up."""
    down, across = falls(random)
    return down[::-1], across[::-1]


def swings(random: np.random.Generator) -> Path2D:
    """Return that of a pendulum."""
    angle = random.uniform(0.4, 0.7) * np.cos(random.uniform(6, 9) * TIMES + random.uniform(0, 6))
    length = random.uniform(25, 35)
    return length * np.cos(angle) + 2, 32 + length * np.sin(angle)


def rolls(random: np.random.Generator) -> Path2D:
    """Return that of a ball on the ground."""
    across = random.uniform(5, 20) + random.uniform(40, 60) * TIMES
    return np.full(FRAMES, 40.0), across if random.random() < 0.5 else WIDTH - across


MOTIONS: tuple[Callable[[np.random.Generator], Path2D], ...] = (falls, rises, swings, rolls)
"""In the order of their classes."""


def clip(random: np.random.Generator, path: Path2D) -> NDArray[np.uint8]:
    """Return the frames of a ball on a path, (T, H, W, 3)."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    ground = random.uniform(40, 110, 3) + 25 * np.sin(columns / random.uniform(4, 9) + random.uniform(0, 6))[..., None]
    ball, radius = random.uniform(140, 255, 3), random.uniform(3.5, 5.5)
    away = np.hypot(rows - path[0][:, None, None], columns - path[1][:, None, None])
    share = (radius - away).clip(0, 1)[..., None]
    frames = ground + share * (ball - ground) + random.normal(0, 6, (FRAMES, HEIGHT, WIDTH, 3))
    return np.asarray(frames.clip(0, 255), np.uint8)


def encoded(frames: NDArray[np.uint8]) -> bytes:
    """Return the frames as an MP4 file."""
    file = io.BytesIO()
    with av.open(file, mode="w", format="mp4") as output:
        stream: Any = output.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.options = {"crf": "20", "preset": "veryfast", "threads": "1"}
        for frame in frames:
            output.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        output.mux(stream.encode())
    return file.getvalue()


def main() -> None:
    """Write the shards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shards", type=int, default=4, help="to train on; one more is to judge by")
    parser.add_argument("--clips", type=int, default=48, help="of each shard")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for shard in range(arguments.shards + 1):
        name = f"train-{shard:03}.tar" if shard < arguments.shards else "test-000.tar"
        with tarfile.open(arguments.folder / name, "w") as tar:
            for number in range(arguments.clips):
                kind = number % len(MOTIONS)
                members = {"mp4": encoded(clip(random, MOTIONS[kind](random))), "cls": str(kind).encode()}
                for extension, content in members.items():
                    member = tarfile.TarInfo(f"{shard:03}{number:04}.{extension}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    count = arguments.shards
    print(f"{count} shards to train on, and one to judge by, of {arguments.clips} clips, are in {arguments.folder}/")


if __name__ == "__main__":
    main()
