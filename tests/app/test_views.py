"""HTML of the page: everything from outside is escaped, and what colours say is told in words too."""

from __future__ import annotations

import dataclasses
import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import atlas_engine as atlas
from app import text, views
from app.examples import ASK_EXAMPLES, FEW_SHOT_EXAMPLES
from app.handlers.ask import AskProgress, ImageAnswer
from app.handlers.few_shot import RunProgress, SavedResult, adapt_few_shot
from app.handlers.inside import RecipeContents, TaskVectorFacts
from app.handlers.settings import FewShotSettings, UnlabelledSettings
from app.handlers.takeaway import python_code, shell_commands
from app.handlers.unlabelled import UnlabelledRequest, adapt_unlabelled
from app.handlers.uploads import LabelledImage, UploadedImage
from app.limits import LIMITS
from atlas_engine.views.heatmap import Grid
from tests.serving import ROOT

EVIL = "<img src=x onerror='alert(1)'>\"&"


class Reader(HTMLParser):
    """Collects the tags, their attributes and the words of some HTML."""

    def __init__(self, html):
        super().__init__()
        self.tags = []
        self.words = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def asked(*answers, left_out=()):
    return AskProgress(total=len(answers), classes=3, answers=answers, left_out=left_out)


def test_a_card_shows_the_picture_and_ranks_its_words_with_numbers():
    answer = ImageAnswer("/up/my cat.jpg", "my cat.jpg", (("cat", 0.9), ("dog", 0.098), ("owl", 0.002)))
    read = Reader(views.render_answers(asked(answer)))
    assert [image["src"] for image in read.of("img")] == ["gradio_api/file=/up/my%20cat.jpg"]
    assert "my cat.jpg" in read.of("img")[0]["alt"]
    assert len(read.of("ol")) == 1
    assert [word for word in read.words if word in ("cat", "dog", "owl", "90%", "10%", "<1%")] == [
        "cat",
        "90%",
        "dog",
        "10%",
        "owl",
        "<1%",
    ]


def test_only_the_first_few_guesses_are_listed():
    answer = ImageAnswer("a.jpg", "a.jpg", tuple((f"c{n}", 0.1) for n in range(10)))
    assert len(Reader(views.render_answers(asked(answer))).of("li")) == LIMITS.top_classes


def test_nothing_from_a_visitor_becomes_markup():
    answer = ImageAnswer(f"/up/{EVIL}", EVIL, ((EVIL, 1.0),))
    parts = (
        views.render_answers(asked(answer)),
        views.render_status(EVIL),
        views.render_alert(EVIL),
        views.render_left_out([EVIL]),
        views.render_banner(EVIL),
    )
    for part in parts:
        read = Reader(part)
        assert all("onerror" not in attributes for _, attributes in read.tags), part
        assert len(read.of("img")) == (1 if part is parts[0] else 0)
    assert EVIL in Reader(parts[0]).words


def test_no_answers_make_no_cards():
    assert views.render_answers(asked()) == ""


def test_each_example_is_a_button_with_its_pictures_and_words():
    read = Reader(views.render_ask_examples(ASK_EXAMPLES))
    buttons = read.of("button")
    assert [button["data-example"] for button in buttons] == ["0", "1", "2"]
    for button, example in zip(buttons, ASK_EXAMPLES, strict=True):
        assert button["type"] == "button"
        assert example.class_text in button["aria-label"]
    assert len(read.of("img")) == sum(len(example.files) for example in ASK_EXAMPLES)


def test_each_lesson_is_a_button_with_a_picture_of_its_first_classes():
    read = Reader(views.render_few_shot_examples(FEW_SHOT_EXAMPLES))
    assert [button["data-example"] for button in read.of("button")] == ["0", "1"]
    assert all("Classes: " in button["aria-label"] for button in read.of("button"))
    assert len(read.of("img")) == 8


def test_alerts_are_announced_and_name_what_was_left_out():
    read = Reader(views.render_left_out(["a.gif: is a GIF.", "b.jpg: is empty."]))
    assert read.of("div")[0]["role"] == "alert"
    assert {"a.gif: is a GIF.", "b.jpg: is empty."} <= set(read.words)
    assert views.render_left_out([]) == views.EMPTY


def test_a_refusal_gets_a_capital_but_a_file_keeps_its_name():
    assert "Class name 'x'" in unescape(views.render_alert("class name 'x' stands twice."))
    assert "my cat.jpg: is empty." in views.render_left_out(["my cat.jpg: is empty."])


def test_percentages_never_pretend_to_be_certain():
    assert [text.page.percent(prob) for prob in (0.0, 0.004, 0.0051, 0.974, 0.996, 1.0)] == [
        "0%",
        "<1%",
        "1%",
        "97%",
        ">99%",
        "100%",
    ]


def test_no_page_text_names_a_web_address():
    assert not re.search(
        r"https?://",
        views.render_header() + views.render_footnote() + views.render_ask_examples(ASK_EXAMPLES),
    )


def test_every_task_vector_of_the_bundled_bank_is_described_as_its_own_document_says(engine):
    told = (ROOT / "assets" / "bank" / "README.md").read_text(encoding="utf-8")
    assert set(text.task_vectors.DATASETS) == set(engine.bank.tasks)
    for name, pictures in text.task_vectors.DATASETS.items():
        assert f"| {name} | {pictures} |" in told
    assert text.task_vectors.training_data("mine", "", "") == "mine"


# ---- runs, comparisons, maps and lines to copy: told in words as well as in colours

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
    progress = RunProgress(
        "learn", index=3, of=40, share=0.3, seconds_left=7.2, losses=(1.0, 0.5), estimates=(ESTIMATE,)
    )
    html = views.render_progress(progress)
    (bar,) = [tag for tag in Reader(html).of("div") if tag.get("role") == "progressbar"]
    assert bar["aria-valuenow"] == "30"
    said = words(html)
    assert "step 4 of 40" in said
    assert "about 8 s left" in said
    assert text.result.counts_so_far(6, None, 10) in said
    assert "Zero-shot" not in said, "a visitor is told in plain words"
    assert "1.00 → 0.50" in said


def test_a_loss_curve_has_a_point_a_step_and_stays_in_its_frame():
    curve = Reader(views._loss_curve([2.0, 1.0, -0.5]))
    (line,) = curve.of("polyline")
    points = [tuple(map(float, point.split(","))) for point in line["points"].split()]
    assert len(points) == 3
    assert all(0 <= x <= views.LOSS_WIDTH and 0 <= y <= views.LOSS_HEIGHT for x, y in points)
    assert points[0][1] < points[1][1] < points[2][1]


@pytest.fixture
def rendered(saved):
    """The answers of a result with this comparison."""

    def render(comparison, samples, **how):
        result = dataclasses.replace(saved, comparison=comparison, samples=tuple(samples))
        return views.render_comparison(result, **how)

    return render


def test_images_that_changed_come_first_each_with_its_word(comparison, rendered):
    samples = [shown("a.png", "otter"), shown("b.png", "otter"), shown("c.png", "otter")]
    html = rendered(comparison, samples)
    assert [image["src"][-5:] for image in Reader(html).of("img")] == ["c.png", "b.png", "a.png"]
    said = words(html)
    assert "2 of 3 images have another answer now: 1 fixed, 1 broken." in said
    assert "2 of 3 were right before, and 2 of 3 are now" in said
    assert said.index("Fixed") < said.index("Broken") < said.index("Same")
    assert "1 of 3 are wrong" in html


def test_an_image_that_was_just_dropped_comes_first_and_a_wrong_answer_can_be_corrected(comparison, rendered):
    samples = [shown("a.png", "otter"), shown("b.png", "otter"), shown("c.png")]
    html = rendered(comparison, samples, first=["/up/a.png"])
    assert Reader(html).of("img")[0]["src"].endswith("a.png")
    assert text.trying.FRESH in words(html)
    choices = [choice["data-image"] for choice in Reader(html).of("select")]
    assert sorted(choices) == ["/up/b.png", "/up/c.png"], "a is right, and known to be"
    assert {"otter", "seal"} <= set(Reader(html).words)


def test_where_the_model_as_it_was_is_kept_there_is_one_side_and_no_word_of_now(saved, comparison):
    samples = (shown("a.png"), shown("b.png"), shown("c.png"))
    recipe = dataclasses.replace(saved.recipe, method="zero-shot")
    result = dataclasses.replace(saved, recipe=recipe, comparison=comparison, samples=samples)
    html = views.render_comparison(result)
    assert len(Reader(html).of("ol")) == len(samples)
    assert text.result.SAME_NOTE in words(html)
    assert "at-side" not in html


def test_both_sides_have_their_own_map_of_what_is_taken_for_what(comparison, rendered):
    samples = [shown(name, "otter") for name in ("a.png", "b.png", "c.png")]
    html = rendered(comparison, samples)
    titles = [text.result.confusion_title(side) for side in (text.result.BEFORE, text.result.NOW)]
    assert all(title in html for title in titles)
    assert html.index(titles[0]) < html.index(titles[1])


def test_many_images_with_the_same_answer_are_closed_at_first_and_changed_ones_never_are(rendered):
    many = views.UNCHANGED_SHOWN + 5
    names = tuple(f"{n}.png" for n in range(many))
    before = [0.9] * many
    samples = [shown(name) for name in names]
    for changed in (1, many - 1):
        after = [0.1] * changed + [0.9] * (many - changed)
        pair = atlas.Comparison(predictions(*before, names=names), predictions(*after, names=names))
        html = rendered(pair, samples)
        closed = html.partition("<details>")[2]
        left = many - max(changed, views.UNCHANGED_SHOWN)
        assert closed.count("at-pair'") == left
        assert text.result.more_the_same(left) in closed
        assert text.result.CHANGE_NAMES["changed"] not in closed


def test_without_known_classes_there_is_no_right_or_wrong(comparison, rendered):
    html = rendered(comparison, [shown("a.png"), shown("b.png"), shown("c.png")])
    assert "right" not in words(html)
    assert "<svg" not in html


def test_without_samples_the_visitor_is_told_how_to_get_some(rendered):
    assert words(rendered(None, [])) == text.result.NO_SAMPLES


@pytest.mark.parametrize("helped", [True, False, None])
def test_the_verdict_is_the_engines_sentence(saved, helped):
    html = views.render_verdict(
        SavedResult(saved.recipe, "No clear difference.", helped=helped, stopped=True)
    )
    assert "No clear difference." in words(html)
    assert text.result.STOPPED_NOTE in words(html)


COUNTS = [
    # zero-shot, head, vectors, kept, helped, what is said
    (4, 11, 14, "atlas+text-probe", True, ("Before: 4 of 16 right. Now: 14 of 16.", text.result.HELPED)),
    (9, 9, 9, "atlas+text-probe", None, ("Before: 9 of 16 right. Now: 9 of 16.", text.result.UNCLEAR)),
    (12, 9, 8, "zero-shot", False, ("With what it learned: 9 of 16.", text.result.NOT_HELPED)),
    (16, 12, 9, "zero-shot", False, ("Before: 16 of 16 right.", text.result.ALL_RIGHT)),
]


@pytest.mark.parametrize(("before", "head", "both", "kept", "helped", "said"), COUNTS)
def test_the_verdict_counts_images_before_and_now_in_plain_words(
    saved, before, head, both, kept, helped, said
):
    counts = {"zero-shot": before, "text-probe": head, "atlas+text-probe": both}
    estimates = tuple(atlas.Estimate(name, right / 16, 0.1, 0.9, 16) for name, right in counts.items())
    recipe = dataclasses.replace(saved.recipe, method=kept)
    result = SavedResult(recipe, "The engine's sentence.", helped=helped, estimates=estimates)
    shown_first, _, details = views.render_verdict(result).partition("<details")
    for sentence in said:
        assert sentence in words(shown_first)
    for expert in ("zero-shot", "held out", "head", "loss", "interval"):
        assert expert not in words(shown_first).lower(), expert
    assert "Zero-shot" in words(details)
    assert "The engine's sentence." in unescape(details)


def test_classes_that_are_taken_for_each_other_are_named(saved, comparison):
    samples = tuple(shown(name, "otter") for name in ("a.png", "b.png", "c.png"))
    result = dataclasses.replace(saved, comparison=comparison, samples=samples)
    assert text.result.mixed_up("otter", "seal", 1, 3) in words(views.render_verdict(result))


def test_task_vectors_are_ranked_by_their_effect_and_the_faint_ones_are_closed(saved):
    facts = [
        TaskVectorFacts(name, name, "8", "90", 0.5, 0.9, 1.0, 0.3, effect, changed)
        for name, effect, changed in (("cars", 0.5, 3), ("pets", 0.2, 1), ("faint", 0.01, 0))
    ]
    contents = RecipeContents(tuple(facts), images=8, layers=(1,))
    clear, _, closed = views.render_effects(contents, saved).partition("<details")
    assert words(clear).index("cars") < words(clear).index("pets")
    assert "3 of 8" in words(clear)
    assert "faint" in words(closed)
    assert "faint" not in words(clear)


@pytest.mark.parametrize(("low", "doubted"), [(0.84, True), (0.86, False)])
def test_a_gain_whose_band_overlaps_with_zero_shots_is_told_with_doubt(saved, low, doubted):
    gain = atlas.Estimate(saved.recipe.method, 0.95, low, 1.0, 10)
    result = SavedResult(saved.recipe, "Adapting helped.", helped=True, estimates=(ESTIMATE, gain))
    assert (text.result.OVERLAP_NOTE in words(views.render_verdict(result))) == doubted


def test_of_several_estimates_the_one_that_was_kept_is_marked(saved):
    own = atlas.Estimate(saved.recipe.method, 0.95, 0.86, 1.0, 10)
    html = views.render_verdict(
        SavedResult(saved.recipe, "Adapting helped.", helped=True, estimates=(ESTIMATE, own))
    )
    before, after = html.split("<li>")[1:3]
    assert text.result.KEPT_MARK in words(after.split("</li>")[0])
    assert text.result.KEPT_MARK not in words(before.split("</li>")[0])


@pytest.mark.parametrize("method", ["text-probe", "atlas+text-probe"])
def test_a_few_shot_method_that_was_asked_for_has_the_name_that_the_page_has_for_it(
    small, few_shot_request, method
):
    *_, last = adapt_few_shot(small, few_shot_request, FewShotSettings(method=method, steps=1))
    check_asked_for(last.result, text.teach.METHOD_NAMES[method])


def test_an_objective_that_was_asked_for_has_the_name_that_the_page_has_for_it(small, few_shot_request):
    images = tuple(UploadedImage(path) for row in few_shot_request.rows for path in row.paths)
    request = UnlabelledRequest(images, few_shot_request.classes)
    *_, last = adapt_unlabelled(small, request, UnlabelledSettings("entropy"))
    check_asked_for(last.result, text.unlabelled.METHOD_NAMES["entropy"])


def check_asked_for(result, name):
    """The page says what the engine says, with the page's own name for the method."""
    method = result.recipe.method
    assert result.sentence.startswith(f"{method} was asked for")
    said = words(views.render_verdict(result))
    assert result.sentence.replace(method, f"“{name}”") in said
    assert method not in said.replace(name, "")


def test_nothing_from_a_visitor_becomes_markup_in_a_result(saved, rendered):
    classes = (EVIL, "seal")
    pair = atlas.Comparison(predictions(0.9, classes=classes), predictions(0.1, classes=classes))
    vector = TaskVectorFacts(EVIL, EVIL, EVIL, EVIL, 0.1, 0.9, 1.0, 1.0)
    parts = [
        rendered(pair, [shown(EVIL)]),
        views.render_verdict(SavedResult(saved.recipe, EVIL)),
        views.render_task_vectors([vector]),
        views.render_bank([vector], Grid(EVIL, (EVIL,), (EVIL,), ((0.5,),), about=EVIL)),
        views.render_code(EVIL, EVIL),
        views.render_link(f"?class={EVIL}"),
    ]
    for part in parts:
        read = Reader(part)
        assert all("onerror" not in attributes for _, attributes in read.tags), part
        assert len(read.of("img")) == (1 if part is parts[0] else 0)


def test_class_names_cannot_break_out_of_the_lines_to_copy(saved):
    evil = dataclasses.replace(saved.recipe, classes=('"); import os; ("', "$(reboot)", "`x`"))
    lines = SavedResult(evil, "", settings=saved.settings)
    assert "import os" not in python_code(lines).replace("import atlas_engine", "")
    assert not set("$`;()") & set(shell_commands(lines))


def test_task_vectors_are_a_table_with_their_data_and_numbers():
    said = words(views.render_task_vectors([TaskVectorFacts("cars", "Cars", "8", "90", 0.5, 0.9, 2.0, 0.75)]))
    assert "cars 75% Cars: 8 classes, 90 images 50% → 90%" in said
