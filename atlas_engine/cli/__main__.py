"""`python -m atlas_engine.cli` is `atlas`, for a clone that is not installed."""

from __future__ import annotations

import sys

from atlas_engine.cli import main

sys.exit(main())
