"""What one visitor may ask for at once, and how long their files stay. Knows nothing of Gradio or models."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["LIMITS", "Limits"]


@dataclass(frozen=True)
class Limits:
    """Every number that keeps the server healthy when strangers use it."""

    images: int = 50
    classes: int = 100
    rows: int = 12  # classes that can be taught at once
    lesson_images: int = 120  # pictures to learn from, all classes together
    samples: int = 24  # pictures to try it on; they stay in memory with the visitor's session
    roll: int = 100  # photos without labels; kept as small as the model sees them, about 0.15 MB each
    turned: int = 4  # donors with a slider
    steps: int = 200
    run_seconds: float = 180.0  # a run that takes longer is stopped, and keeps what it has
    picture_megabytes: int = 20  # what the engine takes of one
    packed_side: int = 896  # pixels, shorter side: larger pictures of a folder are made so on the page
    file_megabytes: int = 100  # a zip of pictures
    upload_megabytes: int = 400  # all files that are sent at once
    zip_files: int = 1000
    zip_megabytes: int = 100  # unpacked
    request_bytes: int = 1 << 20  # of what is not an upload: class names and file references
    mcp_bytes: int = 8 << 20  # the same where programs send pictures inside of requests (ATLAS_MCP)
    waiting: int = 32  # visitors in the queue; the next one is told that it is full
    sessions: int = 100  # each may hold `samples` pictures of about 0.7 MB
    choices: int = 1000  # of models that are remembered; the one not used for longest is forgotten
    sweep_seconds: int = 600
    keep_seconds: int = 1800  # an upload is deleted at the first sweep after this age
    images_per_step: int = 8  # how many pictures are answered between two signs of progress
    shown: int = 5  # classes listed for a picture

    @property
    def longest_stay_minutes(self) -> int:
        """How long an upload can stay on the disk, and what came of it in memory, after it was last used."""
        return (self.sweep_seconds + self.keep_seconds) // 60


ZERO_GPU = Limits(run_seconds=45.0)  # a visitor without an account has two minutes of it a day

LIMITS = ZERO_GPU if os.environ.get("SPACES_ZERO_GPU") else Limits()
