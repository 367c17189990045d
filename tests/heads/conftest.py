"""Every head that is fitted to labels, for the tests that hold for all of them."""

from __future__ import annotations

import pytest

from atlas_engine.heads.registry import HEADS


@pytest.fixture(params=list(HEADS))
def spec(request):
    return HEADS[request.param]
