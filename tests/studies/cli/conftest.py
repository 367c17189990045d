"""What the tests of commands share: how to run one on a small model."""

from __future__ import annotations

from tests.cli.conftest import tiny_atlas

__all__ = ["tiny_atlas"]
