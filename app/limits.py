"""What one visitor may ask for at once, and how long their files stay. Knows nothing of Gradio or models."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMITS", "Limits"]


@dataclass(frozen=True)
class Limits:
    """Every number that keeps the server healthy when strangers use it."""

    images: int = 50
    classes: int = 100
    file_megabytes: int = 10
    request_bytes: int = 1 << 20  # of what is not an upload: class names and file references
    waiting: int = 32  # visitors in the queue; the next one is told that it is full
    sessions: int = 500
    sweep_seconds: int = 600
    keep_seconds: int = 1800  # an upload is deleted at the first sweep after this age
    images_per_step: int = 8  # how many pictures are answered between two signs of progress
    shown: int = 5  # classes listed for a picture

    @property
    def longest_stay_minutes(self) -> int:
        """How long an upload can stay on the disk."""
        return (self.sweep_seconds + self.keep_seconds) // 60


LIMITS = Limits()
