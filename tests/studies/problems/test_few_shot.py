"""Few-shot problems: drawn by seed, and nothing that is measured on was seen."""

from __future__ import annotations

import dataclasses

import pytest

from atlas_engine.data.folders import read_folder
from atlas_engine.errors import SupportError
from studies.problems.few_shot import StudySettings, accuracy, draw_problem
from tests.drawn import write_pictures
from tests.studies.drawn_tasks import QUICK


def drawn(tiny, folder, seed=0, **changes):
    settings = dataclasses.replace(QUICK, **changes)
    return draw_problem(folder, tiny.backbone.preprocessing, settings=settings, seed=seed)


def shots(problem):
    return {image.name for image in problem.support.images}


def test_a_problem_has_the_shots_and_the_test_images_asked_for(tiny, folder):
    problem = drawn(tiny, folder)
    assert problem.support.counts == (2, 2, 2)
    assert problem.support.classes == ("blue", "dark green", "red")
    assert problem.labels.bincount().tolist() == [6, 6, 6]
    assert problem.pixels.shape == (18, 3, 32, 32)
    assert all(name.startswith(("blue", "dark_green", "red")) for name in shots(problem))


def test_no_test_image_is_among_the_shots(tiny, folder):
    problem = drawn(tiny, folder, shots=5, max_test=100)
    learned = {image.pixels.tobytes() for image in problem.support.images}
    measured = {pixels.permute(1, 2, 0).numpy().tobytes() for pixels in problem.pixels}
    assert len(learned) == 15
    assert len(measured) == len(problem.labels) == 21
    assert not learned & measured


def test_validation_images_are_neither_shots_nor_test_images_and_leave_the_shots_alone(tiny, folder):
    shape, settings = tiny.backbone.preprocessing, dataclasses.replace(QUICK, max_test=100)
    problem = draw_problem(folder, shape, settings=settings, validation=3, seed=0)
    assert problem.validation.counts == (3, 3, 3)
    assert problem.validation.classes == problem.support.classes
    parts = [
        {image.pixels.tobytes() for image in problem.support.images},
        {image.pixels.tobytes() for image in problem.validation.images},
        {pixels.permute(1, 2, 0).numpy().tobytes() for pixels in problem.pixels},
    ]
    assert len(set.union(*parts)) == sum(map(len, parts))
    without = draw_problem(folder, shape, settings=settings, seed=0)
    assert shots(without) == shots(problem)
    assert without.digest != problem.digest


def test_the_seed_draws_classes_shots_and_test_images(tiny, tmp_path):
    folder = write_pictures(tmp_path / "many", {f"class{i}": 6 for i in range(8)})
    problems = [drawn(tiny, folder, seed, max_classes=4) for seed in range(4)]
    assert len({problem.support.classes for problem in problems}) > 1
    assert all(len(problem.support.classes) == 4 for problem in problems)
    assert drawn(tiny, folder, 1, max_classes=4).digest == problems[1].digest
    assert len({problem.digest for problem in problems}) == 4


def test_seeds_draw_other_images_of_the_same_classes(tiny, folder):
    one, other = drawn(tiny, folder, 0), drawn(tiny, folder, 1)
    assert one.support.classes == other.support.classes
    assert shots(one) != shots(other)


def test_a_track_is_never_on_both_sides(tiny, tmp_path):
    write_pictures(tmp_path / "films", {"red": 12, "blue": 12})
    for path in sorted((tmp_path / "films").rglob("*.png")):
        path.rename(path.with_name(f"{int(path.stem) // 4}_{path.name}"))
    films = read_folder(tmp_path / "films", track_pattern=r"^(\d+)_")
    tracks = {item.name: item.track for item in films.items}
    for seed in range(3):
        problem = drawn(tiny, films, seed, shots=2, max_test=100)
        seen = {(name.split("/")[0], tracks[name]) for name in shots(problem)}
        assert len(seen) == 4, "two shots of a class come from two tracks"
        assert len(problem.labels) == 8, "what is left of each class is its third track"


def test_the_same_image_twice_is_never_on_both_sides(tiny, tmp_path):
    write_pictures(tmp_path / "twins", {"red": 4, "blue": 4})
    for path in sorted((tmp_path / "twins").rglob("*.png")):
        path.with_name(f"copy of {path.name}").write_bytes(path.read_bytes())
    for seed in range(3):
        problem = drawn(tiny, read_folder(tmp_path / "twins"), seed, max_test=100)
        learned = {image.pixels.tobytes() for image in problem.support.images}
        assert not any(pixels.permute(1, 2, 0).numpy().tobytes() in learned for pixels in problem.pixels)


def test_the_digest_tells_any_change_of_the_problem(tiny, folder):
    problem = drawn(tiny, folder)
    others = [
        drawn(tiny, folder, **changes) for changes in ({"shots": 3}, {"max_test": 9}, {"max_classes": 2})
    ]
    assert len({problem.digest, *(other.digest for other in others)}) == 4


def test_accuracy_is_that_of_the_engines_predictions(tiny, folder):
    problem = drawn(tiny, folder)
    images = [pixels.permute(1, 2, 0).numpy() for pixels in problem.pixels]
    expected = tiny.predict(images, problem.support.classes).accuracy(problem.labels)
    assert accuracy(tiny, tiny.backbone.visual, problem) == pytest.approx(expected)


def test_a_class_with_too_few_images_is_named(tiny, tmp_path):
    folder = write_pictures(tmp_path / "few", {"red": 6, "blue": 3})
    with pytest.raises(SupportError, match=r"class 'blue' has 2 image\(s\) to learn from .* shots=4"):
        drawn(tiny, folder, shots=4)
    with pytest.raises(SupportError, match="class 'x' has 1 image"):
        drawn(tiny, write_pictures(tmp_path / "one", {"red": 6, "x": 1}), shots=1)


def test_the_default_study_is_short():
    loop = StudySettings().loop()
    assert loop.steps * loop.batch <= 400, "a study has hundreds of trials"
