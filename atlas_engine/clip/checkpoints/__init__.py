"""Other people's checkpoints as weights of an open_clip image tower. Knows nothing of banks.

What can be read: `transformers` CLIP models, open_clip state dicts, and whole modules that were pickled, all
of them without running anything that the file holds.
"""

from __future__ import annotations

from atlas_engine.clip.checkpoints.tower import TowerWeights, read_tower

__all__ = ["TowerWeights", "read_tower"]
