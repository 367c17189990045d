"""Adapting without labels to real photographs, with every class among them and with a third of them."""

from __future__ import annotations

import tarfile

import pytest

from atlas_engine.adapt.methods import ALL_CLASSES, SOME_CLASSES
from atlas_engine.data.folders import read_folder
from studies.problems.unlabelled import draw_unlabelled


@pytest.fixture(scope="module")
def scenes(shared_data, tmp_path_factory):
    """Landscapes and streets, of six classes; a vector of the bank was made from them."""
    folder = tmp_path_factory.mktemp("scenes")
    with tarfile.open(shared_data / "intel.tar") as packed:
        packed.extractall(folder, filter="data")
    return read_folder(folder / "intel")


@pytest.mark.parametrize(("present", "kept"), [("all", ALL_CLASSES), ("few", SOME_CLASSES)])
def test_auto_sees_which_classes_are_there_and_names_more_pictures_right(engine, scenes, present, kept):
    draw = draw_unlabelled(scenes, engine.backbone.preprocessing, max_images=100, seed=100)
    positions = draw.positions(present, 100)
    problem, bank = draw.problem(positions), engine.bank.without(["intel"])
    result = engine.test_time(problem.images, problem.classes, bank=bank).result()
    assert result.recipe.method == kept
    answers = engine.logits(result.recipe, problem.pixels, bank=bank).argmax(dim=1)
    names = engine.predict(problem.images, problem.classes).probs.argmax(dim=1)
    before, after = (float((one.cpu() == draw.labels[positions]).float().mean()) for one in (names, answers))
    assert after >= before + 0.05
