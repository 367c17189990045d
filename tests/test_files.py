"""A file appears whole or not at all."""

from __future__ import annotations

import pytest

from atlas_engine.files import atomic_write


def test_a_file_takes_its_place_when_it_is_whole(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with atomic_write(target) as part:
        part.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_leaves_the_old_file_and_no_litter(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def write_half() -> None:
        with atomic_write(target) as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
