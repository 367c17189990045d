"""Every head in the table, as tests are made for all of them."""

from __future__ import annotations

import pytest

from atlas_engine.heads.registry import HEADS


@pytest.fixture(params=list(HEADS))
def row(request):
    return HEADS[request.param]
