"""Make the example pictures from the sample data of scikit-image. Run by hand; nothing imports it.

    pip download --no-deps scikit-image==0.26.0
    python assets/examples/make.py scikit_image-0.26.0-*.whl

Each picture is shrunk and saved as JPEG beside this file. The same wheel and Pillow give the same bytes; the
README beside this file holds their sha256, origin and licence.
"""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
LONG_SIDE = 448

SOURCES = {
    "cat.jpg": "chelsea.png",
    "coffee.jpg": "coffee.png",
    "horse.jpg": "horse.png",
    "photographer.jpg": "camera.png",
    "rocket.jpg": "rocket.jpg",
}


def main(wheel: Path) -> None:
    """Write every picture, and one line each: its sha256, size in bytes and name."""
    with zipfile.ZipFile(wheel) as archive:
        for name, source in SOURCES.items():
            data = as_jpeg(archive.read(f"skimage/data/{source}"))
            (HERE / name).write_bytes(data)
            sys.stdout.write(f"{hashlib.sha256(data).hexdigest()}  {len(data):>6}  {name}\n")


def as_jpeg(data: bytes) -> bytes:
    """The picture with its long side shrunk to LONG_SIDE pixels, as an RGB JPEG without metadata."""
    with Image.open(io.BytesIO(data)) as image:
        shrunk = image.convert("RGB")
    shrunk.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    shrunk.save(buffer, "JPEG", quality=82, optimize=True, progressive=True)
    return buffer.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
