"""`atlas serve`, as far as it goes without Ray."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from app import text
from atlas_engine.cli import main


def test_serving_where_the_internet_may_ask_is_refused(capsys):
    assert main(["serve", "--host", "0.0.0.0"]) == 1
    assert "no address of a private network" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed here")
def test_serving_without_ray_says_what_to_install(capsys):
    assert main(["serve"]) == 1
    assert text.replicas.NO_RAY in capsys.readouterr().err
