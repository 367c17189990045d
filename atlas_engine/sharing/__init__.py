"""Recipes and banks on the model hub: written with a card, and read back.

    result.push_to_hub("owner/otters")           # private unless private=False
    recipe = atlas.load("owner/otters")          # from the hub, checked as any file of strangers

The modules: `repositories` writes and reads them, `cards` has their README.
"""

from __future__ import annotations

from atlas_engine.sharing.repositories import load, push

__all__ = ["load", "push"]
