"""Suites `predict` and `allocator`: what a prediction costs beyond the tower's own arithmetic."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from atlas_engine.cache import Cache
from atlas_engine.data.image import Image
from atlas_engine.data.preprocess import to_batch
from atlas_engine.engine import Atlas
from atlas_engine.engine import open as open_atlas
from atlas_engine.predictions import Predictions
from studies.speed.measure import TimingComparison, compare
from studies.speed.report import Bar, Report

__all__ = ["allocator", "predict"]

IMAGES = 32
SIDE = 320  # pixels; a photo is shrunk to at most 448 before it gets here
CLASSES = ("cat", "dog", "house", "tree", "boat")
IMPORTS = (
    "import torch; from atlas_engine import runtime; runtime.ensure_torchvision(); "
    "import open_clip, transformers"
)
MIB = 2**20

_SERVE = """
import sys, atlas_engine as atlas
from studies.speed.predict import CLASSES, noise_images
from atlas_engine.runtime import memory_report
with atlas.open(cache=False) as engine:
    engine.predict(noise_images(), CLASSES)
print(memory_report().peak_nbytes)
"""
_STEP = """
import json, sys, time, torch
from atlas_engine import runtime
from atlas_engine.clip import bundled
if sys.argv[1] == "kept":
    runtime.keep_memory()
tower = bundled.build().visual.eval()
images, seconds = torch.zeros(32, 3, 128, 128), []
for _ in range(8):
    start = time.perf_counter()
    tower(images).square().mean().backward()
    seconds.append(time.perf_counter() - start)
print(json.dumps(sorted(seconds[2:])[3]))
"""


def predict(*, repeat: int = 9) -> Report:
    """Time predictions against the bare tower, a cold start against imports, and a cache hit."""
    with open_atlas(cache=False) as engine:
        throughput = _throughput(engine, repeat)
    cold = _cold_start(max(3, repeat // 3))
    warm = _cache_hit(repeat)
    peak = int(_run_python("-c", _SERVE))
    return Report(
        name="predict",
        what=f"engine.predict of {IMAGES} images of {SIDE} px over {len(CLASSES)} classes, bundled model",
        ceiling="the bare timm tower's forward on the same batch; the imports alone",
        bars=(
            Bar("throughput / bare tower's", 1 / throughput.ratio("predict", "tower"), ">=", 0.9),
            Bar(
                "cold `atlas predict` / its imports alone",
                cold.ratio("cold", "imports"),
                "<=",
                1.6,
            ),
            Bar("computing / warm cache", warm.ratio("compute", "warm"), ">=", 20.0),
            Bar("peak memory of serving", peak / MIB, "<=", 1.2 * 1024, "MiB"),
        ),
        notes={name: str(t) for c in (throughput, cold, warm) for name, t in c.timings.items()},
    )


def allocator(*, repeat: int = 3) -> Report:
    """Time a training step with and without `runtime.keep_memory`, each in processes of its own."""
    seconds: dict[str, list[float]] = {"kept": [], "returned": []}
    for _ in range(repeat):
        for setting, found in seconds.items():
            found.append(json.loads(_run_python("-c", _STEP, setting)))
    kept, returned = (sorted(found)[repeat // 2] for found in seconds.values())
    return Report(
        name="allocator",
        what="forward and backward of 32 images through the bundled tower, median of medians, in turns",
        ceiling="no page of a tensor is ever faulted in twice",
        bars=(Bar("step with memory kept / returned", kept / returned, "<=", 1.0),),
        notes={"kept": f"{kept * 1e3:.0f} ms", "returned": f"{returned * 1e3:.0f} ms"},
    )


def noise_images(count: int = IMAGES, side: int = SIDE) -> list[Image]:
    """Images of noise, all different: what they show does not matter to the clock."""
    noise = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return [Image(f"noise {index}", pixels) for index, pixels in enumerate(noise)]


def _throughput(engine: Atlas, repeat: int) -> TimingComparison:
    images, shape = noise_images(), engine.backbone.preprocessing
    batch = to_batch(images, size=shape.size, mean=shape.mean, std=shape.std)
    trunk: Callable[[Tensor], Tensor] = engine.backbone.visual.trunk  # type: ignore[assignment]
    expected = engine.predict(images, CLASSES).labels

    def bare() -> object:
        with torch.inference_mode():
            return trunk(batch)

    def is_right(answer: object) -> bool:
        if isinstance(answer, Predictions):
            return answer.labels == expected
        return isinstance(answer, Tensor) and len(answer) == IMAGES

    return compare(
        {"predict": lambda: engine.predict(images, CLASSES), "tower": bare}, check=is_right, repeat=repeat
    )


def _cold_start(repeat: int) -> TimingComparison:
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "noise.png"
        _write_png(image)
        words = (
            "-m",
            "atlas_engine.cli",
            "predict",
            str(image),
            "--no-cache",
            "--classes",
            ",".join(CLASSES),
        )
        return compare(
            {
                "cold": lambda: _run_python(*words),
                "imports": lambda: _run_python("-c", IMPORTS + "; print('noise')"),
            },
            check=lambda printed: "noise" in printed,
            warmup=1,
            repeat=repeat,
        )


def _cache_hit(repeat: int) -> TimingComparison:
    one = noise_images(1)
    with tempfile.TemporaryDirectory() as folder, open_atlas(cache=Cache(folder)) as cached:
        plain = Atlas(cached.backbone)
        expected = plain.predict(one, CLASSES).labels
        return compare(
            {"compute": lambda: plain.predict(one, CLASSES), "warm": lambda: cached.predict(one, CLASSES)},
            check=lambda answer: answer.labels == expected,
            repeat=repeat * 3,
        )


def _run_python(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True)
    return done.stdout


def _write_png(path: Path) -> None:
    """A small PNG by hand: only one file of the project may say PIL."""
    import struct
    import zlib

    rows = b"".join(b"\0" + row.tobytes() for row in noise_images(1)[0].pixels)
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
