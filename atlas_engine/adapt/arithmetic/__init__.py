"""Task arithmetic: forget a set of classes, or one model for several sets. Knows nothing of files."""

from __future__ import annotations
