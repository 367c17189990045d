"""Pictures and labelled sets of pictures, from wherever they come. Knows nothing of models or task vectors.

The names here are light: none of them imports torch, since the helper process that decodes imports them too.
"""

from __future__ import annotations

from atlas_engine.data.decode import ImageSource, read_image, read_images
from atlas_engine.data.folders import (
    ClassFolder,
    Ignored,
    ImageFile,
    LabelledFile,
    UnlabelledFolder,
    natural_key,
    read_folder,
    read_images_in,
    read_labelled_files,
    read_zip,
)
from atlas_engine.data.image import Image, ImageLimits
from atlas_engine.data.zips import ZipLimits

__all__ = [
    "ClassFolder",
    "Ignored",
    "Image",
    "ImageFile",
    "ImageLimits",
    "ImageSource",
    "LabelledFile",
    "UnlabelledFolder",
    "ZipLimits",
    "natural_key",
    "read_folder",
    "read_image",
    "read_images",
    "read_images_in",
    "read_labelled_files",
    "read_zip",
]
