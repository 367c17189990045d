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
    support_images: int = 200  # to learn from, all classes together
    samples: int = 50  # images to try it on; they stay in memory with the visitor's session
    inspected_images: int = 24  # images that the effects of task vectors are measured on
    unlabelled_images: int = 100  # kept as small as the model sees them, about 0.15 MB each
    sliders: int = 4  # task vectors with a slider of their own
    steps: int = 200
    run_seconds: float = 180.0  # a run that takes longer, reading included, is stopped and keeps what it has
    read_seconds: float = 60.0  # to read all images of a request
    least_run_seconds: float = 10.0  # that are left to learn, however long reading took
    image_seconds: float = 10.0  # to read one image
    image_megabytes: int = 20  # what the engine takes of one
    packed_side: int = 896  # pixels, shorter side: larger images of a folder are made so on the page
    file_megabytes: int = 100  # a zip of images
    upload_megabytes: int = 400  # all files that are sent at once
    zip_files: int = 1000
    zip_megabytes: int = 100  # unpacked
    request_bytes: int = 1 << 20  # of what is not an upload: class names and file references
    mcp_bytes: int = 8 << 20  # the same where programs send images inside of requests (ATLAS_MCP)
    json_depth: int = 32  # of what is not an upload: lists and objects inside of each other
    json_values: int = 50_000
    json_files: int = 2000  # file references in one request
    waiting: int = 32  # visitors in the queue; the next one is told that it is full
    waiting_runs: int = 2  # of one client, besides the one under way
    waiting_questions: int = 8  # of one client
    unheard_seconds: float = 30.0  # a job whose client does not listen for so long is dropped
    sessions: int = 100  # each may hold `samples` images as small as the model sees them
    visitor_sessions: int = 12  # of one client; the one not used for longest makes room
    visitor_megabytes: int = 1000  # that one client may upload within `keep_seconds`
    storage_megabytes: int = 4000  # of all visitors' files on the disk
    free_megabytes: int = 500  # of the disk that visitors' files never take
    requests_per_second: float = 40.0  # of one client, on average
    request_burst: int = 600  # at once; the page itself makes about 150 when it is opened
    connections: int = 900  # at once; fewer where the system allows fewer open files
    client_connections: int = 200  # of one client, unless it is a known proxy
    header_seconds: float = 10.0  # to send the head of a request
    body_seconds: float = 20.0  # to send a body, and a second more for each `body_rate` bytes
    body_rate: int = 16 << 10  # bytes a second, at least
    idle_seconds: int = 30  # a connection without a request is closed
    model_gigabytes: float = 10.0  # the largest model, with its checkpoints, that a visitor may have fetched
    drain_seconds: float = 12.0  # for runs to end with their best when the server is stopped
    model_choices: int = 1000  # remembered at most; the one not used for longest is dropped
    sweep_seconds: int = 600
    keep_seconds: int = 1800  # an upload is deleted at the first sweep after this age
    frame_bytes: int = 96 << 10  # of a camera's frame, as text
    recorded_frames: int = 60  # while a button is held
    images_per_step: int = 8  # answered between two signs of progress
    share_days: int = 7  # that a shared classifier is kept
    shares: int = 1000  # classifiers, of about 0.15 MB each
    share_megabytes: int = 512  # all together
    top_classes: int = 5  # listed for an image

    @property
    def longest_stay_minutes(self) -> int:
        """How long an upload can stay on the disk, and its result in memory, after it was last used."""
        return (self.sweep_seconds + self.keep_seconds) // 60


ZERO_GPU = Limits(
    run_seconds=45.0, read_seconds=20.0
)  # a visitor without an account has two minutes of it a day

LIMITS = ZERO_GPU if os.environ.get("SPACES_ZERO_GPU") else Limits()
