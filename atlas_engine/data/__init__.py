"""Images, and labelled sets of images, from files, folders, zips and memory.

The modules:

    image          an image in memory, and the limits it has to keep
    formats        what kind of file some bytes are
    decode         bytes, PIL images and arrays to an `Image`; the only module that imports PIL
    sandbox        the helper process that decodes; `sandbox_worker` is its program
    confinement    what that process gives up: files, processes, the network
    image_files    many images, read when they are asked for and not kept
    folders        folders and zips (`listing`, `zips`) to lists of labelled files
    layouts        split folders, tables, exports of labelling tools; `hub_dataset`: data sets on the hub
    support        labelled images to adapt to
    preprocess     images to pixels of the model's size
    augment        random views of pixels (`filters` has its kernels)
    split          labelled images into train, val and test

The names exported here do not import torch, because the helper process imports them too. Nothing in this
package knows of models or task vectors.
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
from atlas_engine.data.layouts import read_dataset
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
    "read_dataset",
    "read_folder",
    "read_image",
    "read_images",
    "read_images_in",
    "read_labelled_files",
    "read_zip",
]
