"""What one visitor may ask for at once, and how long their files stay."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["IMAGE_ENDINGS", "LIMITS", "ZERO_GPU", "Limits"]

IMAGE_ENDINGS = (
    *("avif", "bmp", "gif", "heic", "heif", "jfif", "jpe", "jpeg"),
    *("jpg", "mpo", "png", "svg", "tif", "tiff", "webp"),
)
"""Files that the page sends as images; the engine reads some of them, and has a sentence for each other."""


@dataclass(frozen=True)
class Limits:
    """The numbers that keep the server healthy when strangers use it."""

    images: int = 50  # to ask about
    classes: int = 100
    sentences: int = 4000  # classes times templates, all read by the text tower
    rows: int = 12  # classes that can be taught at once
    support_images: int = 120  # to learn from, all classes together
    samples: int = 24  # images to try it on; they stay in memory with the visitor's session
    unlabelled_images: int = 100  # kept as small as the model sees them, about 0.15 MB each
    sliders: int = 4  # task vectors with a slider of their own
    steps: int = 200
    run_seconds: float = 180.0  # a run that takes longer is stopped, and keeps what it has
    image_megabytes: int = 20  # what the engine takes of one
    packed_side: int = 896  # pixels, shorter side: larger images of a folder are made so on the page
    file_megabytes: int = 100  # a zip of images
    upload_megabytes: int = 400  # all files that are sent at once
    zip_files: int = 1000
    zip_megabytes: int = 100  # unpacked
    request_bytes: int = 1 << 20  # of what is not an upload: class names and file references
    mcp_bytes: int = 8 << 20  # the same where programs send images inside of requests (ATLAS_MCP)
    waiting: int = 32  # visitors in the queue; the next one is told that it is full
    sessions: int = 100  # each may hold `samples` images of about 0.7 MB
    model_choices: int = 1000  # remembered at most; the one not used for longest is dropped
    sweep_seconds: int = 600
    keep_seconds: int = 1800  # an upload is deleted at the first sweep after this age
    images_per_step: int = 8  # answered between two signs of progress
    top_classes: int = 5  # listed for an image

    @property
    def longest_stay_minutes(self) -> int:
        """How long an upload can stay on the disk, and its result in memory, after it was last used."""
        return (self.sweep_seconds + self.keep_seconds) // 60


ZERO_GPU = Limits(run_seconds=45.0)  # a visitor without an account has two minutes of it a day

LIMITS = ZERO_GPU if os.environ.get("SPACES_ZERO_GPU") else Limits()
