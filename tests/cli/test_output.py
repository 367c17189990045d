"""Files are written whole or not at all, and sizes are given in words."""

from __future__ import annotations

import json

import click
import pytest

from atlas_engine.cli.output import write_json, write_text
from atlas_engine.files import human_nbytes


def test_json_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "result.json"
    write_json(target, {"accuracy": 0.5})
    assert json.loads(target.read_text()) == {"accuracy": 0.5}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(target, {"accuracy": float("nan")})
    (tmp_path / "folder").mkdir()
    with pytest.raises(click.UsageError, match="cannot write"):
        write_json(tmp_path / "folder", {})
    assert json.loads(target.read_text()) == {"accuracy": 0.5}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "result.json"]


def test_a_text_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(click.UsageError, match=r"cannot write .* Choose another file"):
        write_text(tmp_path / ("x" * 250), "a longer name than the file system takes, with ours beside it")
    assert list(tmp_path.iterdir()) == []


def test_bytes_read_well():
    sizes = [0, 1023, 1024, 1_572_864, 5 * 2**30, 3000 * 2**30]
    assert [human_nbytes(size) for size in sizes] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 MiB",
        "5.0 GiB",
        "3000.0 GiB",
    ]
