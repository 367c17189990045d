"""Pictures and labelled sets of pictures, from wherever they come. Knows nothing of models or task vectors.

The names here are light: none of them imports torch, since the helper process that decodes imports them too.
"""

from __future__ import annotations

from atlas_engine.data.folders import (
    ClassFolder,
    Ignored,
    Item,
    Photo,
    PhotoRoll,
    natural_key,
    read_flat,
    read_folder,
    read_items,
    read_zip,
)
from atlas_engine.data.images import ImageLimits, ImageSource, Picture, read_image, read_images
from atlas_engine.data.zips import ZipLimits

__all__ = [
    "ClassFolder",
    "Ignored",
    "ImageLimits",
    "ImageSource",
    "Item",
    "Photo",
    "PhotoRoll",
    "Picture",
    "ZipLimits",
    "natural_key",
    "read_flat",
    "read_folder",
    "read_image",
    "read_images",
    "read_items",
    "read_zip",
]
