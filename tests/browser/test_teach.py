"""What a visitor does on the tab that learns, done in a real browser with real files."""

from __future__ import annotations

import zipfile

import pytest
from PIL import Image

from app import text
from app.examples import LESSONS
from app.limits import LIMITS
from tests.browser.test_page import AXE, OF_GRADIO, OF_ITS_DROP_ZONE, broken_rules
from tests.drawn import COLOURS, square

pytestmark = pytest.mark.browser

PICTURES = "#compare .at-pair"
STEPS = "#settings input[type=number]"


@pytest.fixture
def colours(tmp_path):
    """Noisy squares by colour: files to teach with, and files to try."""

    def save(use, name, seed):
        path = tmp_path / f"{use}-{name}-{seed}.png"
        Image.fromarray(square(COLOURS[name], seed=seed, side=64)).save(path)
        return str(path)

    teach = {name: [save("teach", name, seed) for seed in range(3)] for name in ("red", "blue")}
    return teach, [save("try", name, 9) for name in ("red", "blue")]


@pytest.fixture
def archive(colours, tmp_path):
    """The same as a zip with one folder per class."""
    path = tmp_path / "colours.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name, files in colours[0].items():
            for place, file in enumerate(files):
                packed.write(file, f"{name}/{place}.png")
    return path


def give(page, place, name, files):
    """Name a class and hand over its pictures."""
    page.fill(f"#class-{place} input[type=text], #class-{place} textarea", name)
    page.set_input_files(f"#pictures-{place} input[type=file]", files)
    page.locator(f"#pictures-{place} .thumbnail-item").nth(len(files) - 1).wait_for()


def start_own(page, colours, steps=2):
    """Empty the form, teach two colours, and take few steps."""
    page.click("#own")
    page.wait_for_function("document.querySelectorAll('#pictures-1 .thumbnail-item').length === 0")
    teach, samples = colours
    for place, (name, files) in enumerate(teach.items(), start=1):
        give(page, place, name, files)
    page.set_input_files("#samples input[type=file]", samples)
    page.locator("#samples .thumbnail-item").nth(len(samples) - 1).wait_for()
    page.click("#settings button")
    page.locator(STEPS).first.fill(str(steps))
    page.locator(STEPS).first.press("Tab")


def wait_for_result(page, count):
    page.wait_for_function(
        "count => document.querySelector('#run .at-verdict')"
        " && !document.querySelector('#run').textContent.includes('worked example')"
        " && document.querySelectorAll('#compare .at-pair').length === count",
        arg=count,
    )


def panel(page, name):
    page.get_by_role("tab", name=name).click()


def adapted(page, colours, **how):
    start_own(page, colours, **how)
    page.click("#adapt")
    wait_for_result(page, 2)


def test_the_page_opens_with_a_filled_lesson(visit):
    page = visit()
    lesson = LESSONS[0].lesson
    names = page.locator(".at-class input[type=text], .at-class textarea")
    assert [names.nth(n).input_value() for n in range(names.count())] == list(lesson.classes)
    assert page.locator("#samples .thumbnail-item").count() == len(lesson.samples)


def test_own_pictures_are_learned_and_compared(visit, colours):
    page = visit()
    start_own(page, colours)
    page.click("#adapt")
    page.locator("#run [role=progressbar]").wait_for()
    wait_for_result(page, 2)
    assert page.locator("#teach-alert [role=alert]").count() == 0
    assert page.locator(f"{PICTURES} h3").first.inner_text().startswith(text.ZERO_SHOT)
    assert text.ZERO_SHOT in page.locator("#run .at-estimates").inner_text()
    assert all(page.locator(f"{PICTURES} img").evaluate_all("images => images.map(image => image.complete)"))


def test_a_zip_fills_the_rows_and_another_the_samples_with_their_classes(visit, archive):
    page = visit()
    page.set_input_files("#lesson-zip input[type=file], input#lesson-zip", archive)
    page.wait_for_function("document.querySelectorAll('.at-class').length === 2")
    page.locator("#pictures-2 .thumbnail-item").nth(2).wait_for()
    assert "2 classes, 6 pictures" in page.locator("#lesson-summary").inner_text()
    page.set_input_files("#samples-zip input[type=file], input#samples-zip", archive)
    page.wait_for_function("document.querySelectorAll('#samples .thumbnail-item').length === 6")
    assert "red" in page.locator("#samples").inner_text()


def test_classes_are_added_and_removed_and_the_rest_moves_up(visit, colours):
    page = visit()
    start_own(page, colours)
    page.click("#add-class")
    page.locator("#class-3").wait_for()
    page.get_by_role("button", name=text.remove_label(1)).click()
    page.wait_for_function("document.querySelectorAll('.at-class').length === 2")
    first = page.locator("#class-1 input[type=text], #class-1 textarea").first
    page.wait_for_function(
        "document.querySelector('#class-1 input[type=text], #class-1 textarea').value === 'blue'"
    )
    assert first.input_value() == "blue"


def test_a_long_run_is_stopped_and_keeps_the_best_so_far(visit, colours):
    page = visit()
    start_own(page, colours, steps=LIMITS.steps)
    page.click("#adapt")
    page.get_by_text("Learning: step").wait_for()
    page.click("#stop-adapting")
    wait_for_result(page, 2)
    assert text.STOPPED_NOTE in page.locator("#run").inner_text()


def test_a_lesson_that_cannot_be_learned_gets_a_sentence_and_loses_nothing(visit, colours, tmp_path):
    page = visit()
    start_own(page, colours)
    page.fill("#class-2 input[type=text], #class-2 textarea", "red")
    page.click("#adapt")
    page.get_by_role("alert").filter(has_text="twice").wait_for()
    assert page.locator("#pictures-1 .thumbnail-item").count() == 3
    (tmp_path / "words.jpg").write_text("only words")
    page.fill("#class-2 input[type=text], #class-2 textarea", "blue")
    page.set_input_files("#pictures-2 input[type=file]", [str(tmp_path / "words.jpg")])
    page.locator("#pictures-2 .thumbnail-item").nth(3).wait_for()
    page.click("#adapt")
    page.get_by_role("alert").filter(has_text="words.jpg").wait_for()
    wait_for_result(page, 2)


def test_names_that_look_like_code_are_shown_as_words(visit, colours):
    page = visit()
    page.on("dialog", lambda dialog: pytest.fail("a class name was run"))
    start_own(page, colours)
    evil = "<img src=x onerror=alert(1)>"
    page.fill("#class-1 input[type=text], #class-1 textarea", evil)
    page.click("#adapt")
    wait_for_result(page, 2)
    assert evil in page.locator(f"{PICTURES} .at-label").all_inner_texts()


def test_looking_inside_shows_the_map_and_follows_the_sliders(visit, colours):
    page = visit()
    start_own(page, colours)
    page.locator("#settings input[role=listbox]").click()
    page.get_by_role("option", name=text.METHOD_NAMES["atlas+text-probe"]).click()
    page.click("#adapt")
    wait_for_result(page, 2)
    panel(page, text.TAB_INSIDE)
    page.locator("#map svg:visible").first.wait_for()
    assert page.locator("#donors tbody tr").count() > 1
    slider = page.locator("#turn-1 input[type=number]")
    slider.fill("0")
    slider.press("Tab")
    page.locator("#turned .at-pair").nth(1).wait_for()
    page.click("#turn-back")
    page.wait_for_function("document.querySelectorAll('#turned .at-pair').length === 0")
    page.locator("#map-by").get_by_text(text.BY_NAMES["kind"]).click()
    page.wait_for_function("document.querySelector('#map').textContent.includes('kind of block')")


def test_a_recipe_is_taken_away_and_brought_back(visit, colours, tmp_path):
    page = visit()
    adapted(page, colours)
    panel(page, text.TAB_TAKE)
    page.locator("#recipe:visible").wait_for()
    page.wait_for_function("document.querySelector('#lines').textContent.includes('blue-red')")
    with page.expect_download() as caught:
        page.click("#recipe")
    path = tmp_path / caught.value.suggested_filename
    caught.value.save_as(path)
    assert path.stat().st_size < 200_000
    page.set_input_files("#bring input[type=file], input#bring", path)
    page.get_by_text(text.BROUGHT).wait_for()
    path.write_bytes(b"MZ" * 100)
    page.set_input_files("#bring input[type=file], input#bring", path)
    page.get_by_role("alert").filter(has_text="not a recipe").wait_for()
    page.click("#make-weights")
    page.locator("#weights:visible").wait_for()


def test_a_link_carries_names_and_settings_but_no_pictures(visit):
    page = visit(query="/?class=otter&class=sea+lion&class=walrus&steps=80")
    page.wait_for_function("document.querySelectorAll('.at-class').length === 3")
    names = page.locator(".at-class input[type=text], .at-class textarea")
    assert [names.nth(n).input_value() for n in range(3)] == ["otter", "sea lion", "walrus"]
    assert page.locator("#samples .thumbnail-item").count() == 0
    page.click("#settings button")
    assert page.locator(STEPS).first.input_value() == "80"


def test_the_other_lesson_is_one_click_away(visit):
    page = visit()
    lesson = LESSONS[1].lesson
    page.get_by_role("button", name=text.lesson_label(LESSONS[1].title, lesson.classes)).click()
    page.wait_for_function(
        "count => document.querySelectorAll('.at-class').length === count", arg=len(lesson.rows)
    )
    first = page.locator("#class-1 input[type=text], #class-1 textarea").first
    assert first.input_value() == lesson.classes[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_of_ours(visit, colours, scheme):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm install --no-save axe-core")
    page = visit(scheme=scheme)
    adapted(page, colours)
    page.add_script_tag(path=AXE)
    for name in (text.TAB_COMPARE, text.TAB_INSIDE, text.TAB_TAKE):
        panel(page, name)
        page.wait_for_timeout(500)
        assert broken_rules(page, {"exclude": [".at-drop"]}, known=OF_GRADIO) == {}
    assert broken_rules(page, {"include": [".at-drop"]}, known=OF_ITS_DROP_ZONE) == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_width_and_is_pictured(visit, artefacts, width, scheme):
    page = visit(width=width, scheme=scheme)
    pictures = {text.TAB_COMPARE: "page", text.TAB_INSIDE: "inside", text.TAB_TAKE: "take"}
    for name, short in pictures.items():
        panel(page, name)
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.screenshot(path=artefacts / f"{short}-{width}-{scheme}.png", full_page=True)
