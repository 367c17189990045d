"""What the tests of commands share: how to run one on a small model."""

from __future__ import annotations

import pytest

from atlas_engine.cli import main
from atlas_engine.engine import Atlas
from tests.engines import tiny_engine


@pytest.fixture
def tiny_atlas(monkeypatch, capsys):
    """Run `atlas …` and return (exit code, stdout, stderr). Every model that it opens is the small one."""
    monkeypatch.setattr(
        "atlas_engine.engine.open", lambda _model, *, bank: Atlas(tiny_engine().backbone, bank_path=bank)
    )

    def run(*words):
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run
