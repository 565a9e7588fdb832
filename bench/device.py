"""Claim: batches come to a device beside the work on the last one, at the bandwidth of the bus, and fused.

Prints, for a CUDA device where there is one and for the CPU else, by the same code:

- how fast the loader's path (slots, ring, events) brings bytes to the device, as a share of plain ``copy_`` calls of as
  many bytes out of pinned memory (asked: at least 0.9);
- what chains of transforms take, as a multiple of reading the stored type and writing the result at the bandwidth of
  copying (asked: at most 1.5), and what torch takes step by step;
- how much of an epoch of CosmoFlow is stall: what the same steps on a batch that is there already would not have taken
  (asked: under 1 %), and the time that the loop waited in the loader;
- with ``--picture FILE.png``, copies and computation as bars over time.

``python -m bench.gpu`` takes these figures on a GPU, and docs/gpu.md has them. On the CPU a copy takes the time of the
very core that computes, so that copies are part of the stall there.

    python bench/device.py [--device cuda] [--size 128] [--samples 32] [--batch-size 1] [--picture FILE.png] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.ondevice import fusion, picture, training, transfer
from voxload.loader.device.copiers import with_index


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="where batches go (default: cuda where there is one, else cpu)")
    parser.add_argument("--size", type=int, default=128, help="voxels of a sample along each axis (default 128)")
    parser.add_argument("--samples", type=int, default=32, help="samples of an epoch (default 32)")
    parser.add_argument("--batch-size", type=int, default=1, help="samples of a batch (default 1)")
    parser.add_argument("--picture", type=Path, help="where the picture of copies and computation goes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    words = parser.parse_args()
    if words.device is None and not torch.cuda.is_available():
        print("no CUDA device: these are the figures of the CPU, by the same code", file=sys.stderr)
    device = with_index(torch.device(words.device or ("cuda" if torch.cuda.is_available() else "cpu")))
    moved = transfer.measure(device, words.size)
    fused = fusion.measure(device, words.size)
    with tempfile.TemporaryDirectory() as folder:
        training.make_samples(Path(folder), words.size, words.samples)
        trained = training.measure(
            device, Path(folder), size=words.size, batch_size=words.batch_size, network="cosmoflow"
        )
    if words.picture:
        picture.draw(trained.spans, words.picture, title=f"CosmoFlow, {words.size}^3 x 4 int16, on {device}")
    if words.json:
        print(json.dumps(_figures(str(device), moved, fused, trained), indent=1))
    else:
        _show(str(device), moved, fused, trained)
    return 0


def _figures(
    device: str, moved: transfer.Transfer, fused: list[fusion.Fusion], trained: training.Training
) -> dict[str, object]:
    return {
        "device": device,
        "transfer": asdict(moved) | {"share": moved.share},
        "fusion": [asdict(one) | {"multiple": one.multiple} for one in fused],
        "training": asdict(trained) | {"stall_share": trained.stall_share},
    }


def _show(device: str, moved: transfer.Transfer, fused: list[fusion.Fusion], trained: training.Training) -> None:
    print(f"to {device}: {moved.loader / 1e9:.2f} GB/s, plain copies {moved.plain / 1e9:.2f}, share {moved.share:.2f}")
    print(f"\n{'chain':<36}{'stored':<9}{'fused ms':>9}{'floor ms':>9}{'multiple':>9}{'eager ms':>9}")
    for one in fused:
        times = f"{one.fused * 1e3:>9.2f}{one.floor * 1e3:>9.2f}{one.multiple:>9.2f}{one.eager * 1e3:>9.2f}"
        print(f"{one.chain:<36}{one.stored:<9}{times}")
    print(f"\nCosmoFlow: {trained.steps} steps, {trained.step * 1e3:.1f} ms each on a resident batch")
    print(f"epoch {trained.epoch:.3f} s, stall {trained.stall_share:.2%}, waited in the loader {trained.stalled:.4f} s")


if __name__ == "__main__":
    sys.exit(main())
