"""Drawing by seed: classes keep their images, images their labels, and folders have names that differ."""

from __future__ import annotations

from atlas_engine.data.folders import ClassFolder, LabelledFile
from studies.problems.draw import draw_classes, draw_images, with_classes


def test_drawn_classes_keep_their_images_and_the_seed_decides():
    items = tuple(LabelledFile(f"{label}-{n}", label, b"") for label in range(6) for n in range(2))
    folder = ClassFolder("letters", tuple("abcdef"), items)
    drawn = draw_classes(folder, 3, seed=1)
    assert len(drawn.classes) == 3
    assert drawn == draw_classes(folder, 3, seed=1)
    assert {d.classes for d in (draw_classes(folder, 3, seed=s) for s in range(8))} != {drawn.classes}
    for item in drawn.items:
        assert folder.classes[int(item.name[0])] == drawn.classes[item.label]
    assert draw_classes(folder, 6) is folder


def test_drawn_images_keep_their_labels_and_the_seed_decides():
    items = tuple(LabelledFile(str(n), n % 2, b"") for n in range(20))
    folder = ClassFolder("numbers", ("even", "odd"), items)
    drawn = draw_images(folder, 7, seed=3)
    assert len(drawn.items) == 7
    assert drawn == draw_images(folder, 7, seed=3) != draw_images(folder, 7, seed=4)
    assert all(item.label == int(item.name) % 2 for item in drawn.items)
    assert draw_images(folder, 20) is folder


def test_chosen_classes_are_numbered_in_the_order_given():
    items = tuple(
        LabelledFile(f"{label}-{n}", label, b"", f"track {n}") for label in range(3) for n in range(2)
    )
    kept = with_classes(ClassFolder("letters", tuple("abc"), items), ("c", "a"))
    assert kept.classes == ("c", "a")
    assert [(item.name, item.label, item.track) for item in kept.items] == [
        ("0-0", 1, "track 0"),
        ("0-1", 1, "track 1"),
        ("2-0", 0, "track 0"),
        ("2-1", 0, "track 1"),
    ]
