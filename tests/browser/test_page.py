"""What a visitor does on the tab that only asks, done in a real browser."""

from __future__ import annotations

import re

import pytest

from app import text
from app.examples import EXAMPLES, FOLDER
from tests.serving import ROOT

pytestmark = pytest.mark.browser

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
# Rules that Gradio's own components break; the last one only in its drop zone.
OF_GRADIO = {"aria-prohibited-attr", "nested-interactive"}
OF_ITS_DROP_ZONE = OF_GRADIO | {"label-content-name-mismatch"}
FIRST_WORDS = ".at-card .at-guesses li:first-child .at-label"


@pytest.fixture
def visit(visit):
    def open_tab(**how):
        page = visit(**how)
        page.get_by_role("tab", name=text.TAB_ASK).click()
        page.wait_for_selector(".at-card")
        return page

    return open_tab


def ask_about(page, *files, words):
    if files:
        page.set_input_files("#images input[type=file]", list(files))
        page.locator("#images .thumbnail-item").nth(len(files) - 1).wait_for()
    page.fill("#classes textarea", words)
    page.click("#ask")


def wait_for_answers(page, count):
    page.wait_for_function(
        "([line, count]) => document.querySelector('#status [role=status]').textContent.startsWith(line)"
        " && document.querySelectorAll('.at-card').length === count",
        arg=[text.finished(count, 0).split(",")[0], count],
    )


def test_the_page_opens_on_an_answered_example(visit):
    page = visit()
    assert page.locator("h1").inner_text() == text.TITLE
    assert page.locator(FIRST_WORDS).all_inner_texts() == ["cat", "coffee", "rocket"]
    assert text.OPENING in page.locator("#status").inner_text()
    assert page.locator("#banner").count() == 0


def test_one_click_on_an_example_fills_the_form_and_answers_it(visit):
    page = visit()
    example = EXAMPLES[2]
    page.get_by_role("button", name=text.example_label(example.title, example.classes)).click()
    wait_for_answers(page, len(example.files))
    assert page.locator(FIRST_WORDS).all_inner_texts() == ["horse", "photographer"]
    assert page.input_value("#classes textarea") == example.class_text
    assert page.locator("#images .thumbnail-item").count() == len(example.files)
    assert all(
        page.locator(".at-card img").evaluate_all("images => images.map(image => image.naturalWidth > 0)")
    )


def test_own_files_and_words_are_answered_with_the_picture_beside(visit):
    page = visit()
    ask_about(page, FOLDER / "cat.jpg", FOLDER / "rocket.jpg", words="rocket\ncat\nteapot")
    wait_for_answers(page, 2)
    assert page.locator(FIRST_WORDS).all_inner_texts() == ["cat", "rocket"]
    assert page.locator(".at-card figcaption").all_inner_texts() == ["cat.jpg", "rocket.jpg"]
    assert re.fullmatch(r"[<>]?\d+%", page.locator(".at-card .at-number").first.inner_text())
    page.wait_for_function(
        "[...document.querySelectorAll('.at-card img')].every(image => image.naturalWidth > 0)"
    )


def test_a_bad_file_is_named_and_the_good_one_answered(visit, draw, tmp_path):
    (tmp_path / "words.jpg").write_text("only words")
    page = visit()
    ask_about(page, tmp_path / "words.jpg", draw("good.png"), words="cat, dog")
    wait_for_answers(page, 1)
    assert page.get_by_role("alert").filter(has_text="words.jpg").is_visible()
    assert page.locator(".at-card figcaption").all_inner_texts() == ["good.png"]


def test_a_question_that_cannot_be_asked_gets_a_sentence_and_loses_nothing(visit, draw):
    page = visit()
    ask_about(page, words="cat, dog")
    page.get_by_role("alert").filter(has_text=text.NO_IMAGES).wait_for()
    assert page.input_value("#classes textarea") == "cat, dog"
    ask_about(page, draw("red.png"), words="cat, Cat")
    page.get_by_role("alert").filter(has_text="stands twice").wait_for()
    assert page.locator("#images .thumbnail-item").count() == 1
    ask_about(page, words="cat, dog")
    wait_for_answers(page, 1)
    assert page.locator("#alert [role=alert]").count() == 0


def test_names_that_look_like_code_are_shown_as_words(visit, draw):
    evil = ["<img src=x onerror=alert(1)>", "${1+1}", "{{value}}"]
    page = visit()
    page.on("dialog", lambda dialog: pytest.fail("a class name was run"))
    ask_about(page, draw("red.png"), words="\n".join(evil))
    wait_for_answers(page, 1)
    assert set(page.locator(".at-card .at-label").all_inner_texts()) == set(evil)


def test_a_picture_dropped_or_pasted_anywhere_joins_the_others(visit, draw):
    page = visit()
    hand_over = """([type, field]) => {
        const box = new DataTransfer();
        const canvas = new OffscreenCanvas(32, 32);
        canvas.getContext("2d");
        return canvas.convertToBlob({ type: "image/png" }).then((blob) => {
            box.items.add(new File([blob], type + ".png", { type: "image/png" }));
            const options = { bubbles: true, cancelable: true, [field]: box };
            const event = type === "drop" ? new DragEvent(type, options) : new ClipboardEvent(type, options);
            document.querySelector("h1").dispatchEvent(event);
        });
    }"""
    page.evaluate(hand_over, ["drop", "dataTransfer"])
    page.locator("#images .thumbnail-item").first.wait_for()
    page.evaluate(hand_over, ["paste", "clipboardData"])
    page.locator("#images .thumbnail-item").nth(1).wait_for()


def test_the_keyboard_alone_is_enough(visit):
    page = visit()
    label = text.example_label(EXAMPLES[1].title, EXAMPLES[1].classes)
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('aria-label')") == label:
            break
    page.keyboard.press("Enter")
    wait_for_answers(page, len(EXAMPLES[1].files))
    page.focus("#classes textarea")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "ask"


def test_a_long_question_shows_progress_and_can_be_stopped(visit, draw):
    page = visit()
    files = [draw(f"{n}.png", colour=(5 * n, 90, 60), size=(1200, 900)) for n in range(40)]
    ask_about(page, *files, words="cat, dog")
    page.wait_for_selector("#stop", state="visible")
    assert "of 40 done" in page.locator("#status").inner_text()
    page.click("#stop")
    page.get_by_text(text.STOPPED).wait_for()
    assert page.locator("#stop").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_of_ours(visit, scheme):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm install --no-save axe-core")
    page = visit(scheme=scheme)
    ask_about(page, words="cat")
    page.locator("#alert [role=alert]").wait_for()
    page.add_script_tag(path=AXE)
    assert broken_rules(page, {"exclude": ["#images"]}, known=OF_GRADIO) == {}
    assert broken_rules(page, {"include": ["#images"]}, known=OF_ITS_DROP_ZONE) == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_width_and_is_pictured(visit, artefacts, width, scheme):
    page = visit(width=width, scheme=scheme)
    example = EXAMPLES[0]
    page.get_by_role("button", name=text.example_label(example.title, example.classes)).click()
    wait_for_answers(page, len(example.files))
    page.wait_for_function("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=artefacts / f"ask-{width}-{scheme}.png", full_page=True)


def broken_rules(page, where, *, known):
    found = page.evaluate("where => axe.run(where).then(result => result.violations)", where)
    return {rule["id"]: [node["html"] for node in rule["nodes"]] for rule in found if rule["id"] not in known}
