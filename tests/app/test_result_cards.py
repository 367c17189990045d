"""HTML of runs, comparisons, maps and lines to copy: escaped, and told in words as well as in colours."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import atlas_engine as atlas
from app import compare_cards, inside_cards, run_cards, text
from app.handlers.inside import Donor
from app.handlers.lesson import LabelledImage
from app.handlers.takeaway import command_lines, python_lines
from app.handlers.teach import RunProgress
from app.state import SavedResult
from atlas_engine.views.heatmap import Grid
from tests.app.test_cards import EVIL, Reader

CLASSES = ("otter", "seal")
ESTIMATE = atlas.Estimate("zero-shot", 0.6, 0.3, 0.85, 10)


def shown(name, truth=None):
    return LabelledImage(f"/up/{name}", atlas.Image(name, np.zeros((8, 8, 3), np.uint8)), truth)


def predictions(*probs, names=("a", "b", "c"), classes=CLASSES):
    return atlas.Predictions(names[: len(probs)], classes, torch.tensor([[p, 1 - p] for p in probs]))


@pytest.fixture
def comparison():
    """a stays an otter, b becomes a seal, c becomes an otter."""
    return atlas.Comparison(predictions(0.9, 0.8, 0.3), predictions(0.9, 0.2, 0.7))


def words(html):
    return " ".join(" ".join(Reader(html).words).split())


def test_progress_is_told_to_screen_readers_with_its_time():
    taught = RunProgress(
        "learn", index=3, of=40, share=0.3, seconds_left=7.2, losses=(1.0, 0.5), estimates=(ESTIMATE,)
    )
    html = run_cards.progress_html(taught)
    (bar,) = [tag for tag in Reader(html).of("div") if tag.get("role") == "progressbar"]
    assert bar["aria-valuenow"] == "30"
    said = words(html)
    assert "step 4 of 40" in said
    assert "about 8 s left" in said
    assert "60% (30% to 85%)" in said
    assert "1.00 → 0.50" in said


def test_a_loss_curve_has_a_point_a_step_and_stays_in_its_frame():
    curve = Reader(run_cards.loss_curve([2.0, 1.0, -0.5]))
    (line,) = curve.of("polyline")
    points = [tuple(map(float, point.split(","))) for point in line["points"].split()]
    assert len(points) == 3
    assert all(0 <= x <= run_cards.CURVE_WIDTH and 0 <= y <= run_cards.CURVE_HEIGHT for x, y in points)
    assert points[0][1] < points[1][1] < points[2][1]


def test_pictures_that_changed_come_first_each_with_its_word(comparison):
    samples = [shown("a.png", "otter"), shown("b.png", "otter"), shown("c.png", "otter")]
    html = compare_cards.compare_html(comparison, samples)
    assert [image["src"][-5:] for image in Reader(html).of("img")] == ["c.png", "b.png", "a.png"]
    said = words(html)
    assert "2 of 3 pictures have another answer now: 1 fixed, 1 broken." in said
    assert "Right: 2 of 3 by zero-shot, 2 of 3 adapted." in said
    assert said.index("Fixed") < said.index("Broken") < said.index("Same")
    assert "1 of 3 are wrong" in html


def test_both_sides_have_their_own_map_of_what_is_taken_for_what(comparison):
    samples = [shown(name, "otter") for name in ("a.png", "b.png", "c.png")]
    html = compare_cards.compare_html(comparison, samples)
    titles = [text.confusion_title(side) for side in (text.ZERO_SHOT, text.ADAPTED)]
    assert all(title in html for title in titles)
    assert html.index(titles[0]) < html.index(titles[1])


def test_many_pictures_with_the_same_answer_are_closed_at_first_and_changed_ones_never_are():
    many = compare_cards.AT_FIRST + 5
    names = tuple(f"{n}.png" for n in range(many))
    before = [0.9] * many
    samples = [shown(name) for name in names]
    for changed in (1, many - 1):
        after = [0.1] * changed + [0.9] * (many - changed)
        pair = atlas.Comparison(predictions(*before, names=names), predictions(*after, names=names))
        html = compare_cards.compare_html(pair, samples)
        closed = html.partition("<details>")[2]
        left = many - max(changed, compare_cards.AT_FIRST)
        assert closed.count("at-pair'") == left
        assert text.more_the_same(left) in closed
        assert text.CHANGED_NOTES["changed"] not in closed


def test_without_known_classes_there_is_no_right_or_wrong(comparison):
    html = compare_cards.compare_html(comparison, [shown("a.png"), shown("b.png"), shown("c.png")])
    assert "right" not in words(html)
    assert "<svg" not in html


def test_without_samples_the_visitor_is_told_how_to_get_some():
    assert words(compare_cards.compare_html(None, [])) == text.NO_SAMPLES


@pytest.mark.parametrize("helped", [True, False, None])
def test_the_verdict_is_the_engines_sentence(kept, helped):
    html = run_cards.verdict_html(
        SavedResult(kept.recipe, "No clear difference.", helped=helped, stopped=True)
    )
    assert "No clear difference." in words(html)
    assert text.STOPPED_NOTE in words(html)


@pytest.mark.parametrize(("low", "doubted"), [(0.84, True), (0.86, False)])
def test_a_gain_whose_band_overlaps_with_zero_shots_is_told_with_doubt(kept, low, doubted):
    gain = atlas.Estimate(kept.recipe.method, 0.95, low, 1.0, 10)
    result = SavedResult(kept.recipe, "Adapting helped.", helped=True, estimates=(ESTIMATE, gain))
    assert (text.OVERLAP_NOTE in words(run_cards.verdict_html(result))) == doubted


def test_of_several_estimates_the_one_that_was_kept_is_marked(kept):
    own = atlas.Estimate(kept.recipe.method, 0.95, 0.86, 1.0, 10)
    html = run_cards.verdict_html(
        SavedResult(kept.recipe, "Adapting helped.", helped=True, estimates=(ESTIMATE, own))
    )
    before, after = html.split("<li>")[1:]
    assert text.KEPT_MARK in words(after.split("</li>")[0])
    assert text.KEPT_MARK not in words(before.split("</li>")[0])


def test_a_method_that_was_asked_for_has_the_name_that_the_page_has_for_it(kept):
    said = words(
        run_cards.verdict_html(SavedResult(kept.recipe, f"{kept.recipe.method} was asked for; fine."))
    )
    assert f"“{text.METHOD_NAMES[kept.recipe.method]}” was asked for" in said
    assert kept.recipe.method not in said


def test_nothing_from_a_visitor_becomes_markup(kept):
    classes = (EVIL, "seal")
    pair = atlas.Comparison(predictions(0.9, classes=classes), predictions(0.1, classes=classes))
    donor = Donor(EVIL, EVIL, EVIL, EVIL, 0.1, 0.9, 1.0, 1.0)
    parts = [
        compare_cards.compare_html(pair, [shown(EVIL, EVIL)]),
        run_cards.verdict_html(SavedResult(kept.recipe, EVIL)),
        inside_cards.donors_html([donor]),
        inside_cards.bank_html([donor], Grid(EVIL, (EVIL,), (EVIL,), ((0.5,),), about=EVIL)),
        inside_cards.code_html(EVIL, EVIL),
        inside_cards.share_html(f"?class={EVIL}"),
    ]
    for part in parts:
        read = Reader(part)
        assert all("onerror" not in attributes for _, attributes in read.tags), part
        assert len(read.of("img")) == (1 if part is parts[0] else 0)


def test_class_names_cannot_break_out_of_the_lines_to_copy(kept):
    import dataclasses

    evil = dataclasses.replace(kept.recipe, classes=('"); import os; ("', "$(reboot)", "`x`"))
    lines = SavedResult(evil, "", choices=kept.choices)
    assert "import os" not in python_lines(lines).replace("import atlas_engine", "")
    assert not set("$`;()") & set(command_lines(lines))


def test_donors_are_a_table_with_their_data_and_numbers():
    said = words(inside_cards.donors_html([Donor("cars", "Cars", "8", "90", 0.5, 0.9, 2.0, 0.75)]))
    assert "cars 75% Cars: 8 classes, 90 pictures 50% → 90%" in said
