"""The study of exports: what it counts is what the two runtimes say of the same images."""

from __future__ import annotations

import pytest

from atlas_engine.data.support import Support
from studies.cli.exports import _split
from studies.exports import PRECISIONS, measure_exports
from tests.drawn import write_pictures
from tests.exporting.models import session_with_bank


def test_an_exported_model_is_measured_beside_the_library(tmp_path):
    folder = write_pictures(tmp_path / "squares", {"red": 6, "blue": 6})
    support, images, labels = _split(folder, shots=2, most=5, seed=0)
    assert isinstance(support, Support)
    assert (len(support), support.counts, len(images)) == (4, (2, 2), 5)
    names = {image.name for image in support.images}
    assert names.isdisjoint(image.name for image in images), "none is both learned from and answered"
    rows = list(
        measure_exports(session_with_bank(), support, images, labels, dataset="squares", method="tip")
    )
    assert tuple(row.precision for row in rows) == PRECISIONS
    for row in rows:
        assert row.same_answers == 1.0
        assert row.largest_difference < 1e-4  # the small model has no weights that int8 would round
        assert row.accuracy == pytest.approx(row.accuracy_torch)
        assert row.nbytes > 0
