"""Where the vectors of a bank are: on the device, in memory or on disk.

str(bank.residency())      # "500 vectors: 8 on cpu (17.2 MiB), 64 in memory (…), 428 on disk"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from atlas_engine.files import human_nbytes

__all__ = ["Residency", "Tier", "VectorPlace"]


class Tier(str, Enum):
    """A place for vectors, the nearest to the computation first."""

    device = "device"
    memory = "memory"
    disk = "disk"


@dataclass(frozen=True)
class VectorPlace:
    """The nearest tier that has numbers of a vector, how many bytes of it are in memory, and its last score.

    The score is the cosine of the vector's centroid and the last images that vectors were chosen for.
    """

    task: str
    tier: Tier
    memory_nbytes: int = 0
    score: float | None = None


@dataclass(frozen=True)
class Residency:
    """Where the vectors of a bank are. The device's bytes are those that a computation has under way."""

    vectors: Sequence[VectorPlace]
    device: str
    device_nbytes: int
    memory_nbytes: int = 0
    memory_limit_nbytes: int | None = None
    disk_nbytes: int = 0
    index_nbytes: int = 0

    def count(self, tier: Tier) -> int:
        """How many vectors are in this tier and in none nearer."""
        return sum(place.tier is tier for place in self.vectors)

    @property
    def on_device(self) -> int:
        """Vectors that a computation has on the device."""
        return self.count(Tier.device)

    @property
    def in_memory(self) -> int:
        """Further vectors of which something is in memory."""
        return self.count(Tier.memory)

    @property
    def on_disk(self) -> int:
        """Vectors that are nowhere but on disk."""
        return self.count(Tier.disk)

    def __str__(self) -> str:
        parts = [f"{self.on_device} on {self.device} ({human_nbytes(self.device_nbytes)})"]
        if self.memory_limit_nbytes is not None:
            used, limit = human_nbytes(self.memory_nbytes), human_nbytes(self.memory_limit_nbytes)
            parts.append(f"{self.in_memory} in memory ({used} of {limit})")
        if self.disk_nbytes:
            parts.append(f"{self.on_disk} on disk ({human_nbytes(self.disk_nbytes)})")
        return f"{len(self.vectors)} vectors: {', '.join(parts)}"
