"""Hostile inputs, made from a seed: broken images, zips and JSON, and images that cost much to decode."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from app.examples import ASK_EXAMPLES

__all__ = ["broken_files", "broken_json", "costly_jpeg", "large_images", "zip_bomb"]

SCAN, END = b"\xff\xda", b"\xff\xd9"  # markers of JPEG
ENDINGS = ("jpg", "png", "webp", "zip")


def broken_files(count: int, folder: Path, *, seed: int = 0) -> list[Path]:
    """Images and zips of which some bytes were changed, cut or repeated; a few keep another ending."""
    draw = random.Random(seed)
    whole = _whole_files()
    made = []
    for number in range(count):
        ending, data = whole[number % len(whole)]
        wrong = draw.choice(ENDINGS) if draw.random() < 0.1 else ending
        path = folder / f"{number}.{wrong}"
        path.write_bytes(_break(bytearray(data), draw))
        made.append(path)
    return made


def broken_json(count: int, *, seed: int = 0) -> Iterator[bytes]:
    """Bodies like those that the page posts, with odd values, depths, lengths and references."""
    draw = random.Random(seed)
    odd: list[object] = [
        None,
        True,
        -1,
        1e308,
        "",
        "\x00",
        "../../etc/passwd",
        {"path": "/etc/passwd"},
        {"path": None},
        [],
        {},
    ]
    odd += [{"path": "http://127.0.0.1/a.jpg"}, "x" * 5000, [[]] * 50, {"__type__": "update"}, 10**30]
    for _ in range(count):
        body = {
            "data": [draw.choice(odd) for _ in range(draw.randrange(9))],
            "fn_index": draw.choice([0, 1, 5, 10, 40, 10**9, -1, None, "0", 2.5]),
            "session_hash": draw.choice(["s", "", None, "é" * 40, "x" * 300, 5, "../a"]),
            "event_id": draw.choice([None, "e", "x" * 200]),
            "trigger_id": draw.choice([None, 3, "a"]),
        }
        data = json.dumps(body).encode()
        yield data if draw.random() < 0.8 else _break(bytearray(data), draw)


def costly_jpeg(path: Path, *, side: int = 3000, scans: int = 60) -> Path:
    """A small progressive JPEG whose last scan is repeated: every copy is decoded again."""
    stored = io.BytesIO()
    grey = Image.fromarray(np.full((side, side), 128, np.uint8))
    grey.save(stored, "JPEG", progressive=True, quality=50)
    data = stored.getvalue()
    last = data.rindex(SCAN)
    path.write_bytes(data[:last] + data[last : -len(END)] * scans + END)
    return path


def large_images(count: int, folder: Path, *, size: tuple[int, int] = (3000, 2000)) -> list[Path]:
    """Large images that are honest: noise, so that nothing about them is small."""
    made = []
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 255, (size[1] // 8, size[0] // 8, 3), np.uint8)
        path = folder / f"large-{number}.jpg"
        Image.fromarray(noise).resize(size).save(path, quality=70)
        made.append(path)
    return made


def zip_bomb(path: Path, *, megabytes: int = 300) -> Path:
    """A zip whose images unpack to far more than it says."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(megabytes // 10):
            packed.writestr(f"{'ab'[number % 2]}/{number}.png", bytes(10 << 20))
    return path


def _whole_files() -> list[tuple[str, bytes]]:
    image = Image.open(ASK_EXAMPLES[0].paths[0]).convert("RGB").resize((160, 120))
    whole = []
    for ending, kind in (("jpg", "JPEG"), ("png", "PNG"), ("webp", "WEBP")):
        stored = io.BytesIO()
        image.save(stored, kind)
        whole.append((ending, stored.getvalue()))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for number in range(4):
            archive.writestr(f"{'ab'[number % 2]}/{number}.jpg", whole[0][1])
    return [*whole, ("zip", packed.getvalue())]


def _break(data: bytearray, draw: random.Random) -> bytes:
    for _ in range(draw.choice((1, 3, 10, 40))):
        how, place = draw.randrange(3), draw.randrange(max(len(data), 1))
        if how == 0 and data:
            data[place] = draw.randrange(256)
        elif how == 1:
            data[place:place] = data[place : place + draw.randrange(64)]
        else:
            del data[place : place + draw.randrange(64)]
    return bytes(data[: draw.randrange(1, len(data) + 2)] if draw.random() < 0.3 else data)
