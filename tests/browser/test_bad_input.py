"""What goes wrong in the hands of a visitor: the page tells the file and the remedy, and stays whole."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

import pytest

import atlas_engine as atlas
from app import text
from app.examples import FEW_SHOT_EXAMPLES, FOLDER
from app.limits import LIMITS
from app.prepared_examples import RECIPE
from tests.app.test_bad_input import ELF, HEIC, SVG, gif, vast_png
from tests.browser.steps import (
    NAME,
    ask_about,
    panel,
    start_empty,
    start_own,
    try_empty,
    upload,
    wait_for_answers,
    wait_for_names,
    wait_until_in_sight,
)

pytestmark = pytest.mark.browser

IMAGES = "#samples input[type=file]"
HAND_OVER = """([name, type, zone]) => {
    const box = new DataTransfer();
    box.items.add(new File(["MZ"], name, { type }));
    const options = { bubbles: true, cancelable: true, dataTransfer: box };
    const event = new DragEvent("drop", options);
    document.querySelector(zone).dispatchEvent(event);
    return event.defaultPrevented;
}"""


@pytest.fixture
def zipped(tmp_path):
    def pack(name, members):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as made:
            for member, data in members:
                made.writestr(member, data)
        return tmp_path / name

    return pack


def told(page, *words):
    """An alert in sight has all of these."""
    alert = page.get_by_role("alert")
    for word in words:
        alert = alert.filter(has_text=word)
    alert.first.wait_for()


def thumbnails(page, zone="#samples"):
    return page.locator(f"{zone} .thumbnail-item").count()


@pytest.mark.parametrize("width", [1280, 390])
def test_pictures_that_are_none_are_named_with_the_remedy_and_the_good_one_is_answered(
    visit, tmp_path, width
):
    page = visit(width=width)
    try_empty(page)
    bad = {
        "phone.heic": HEIC,
        "moving.gif": gif(),
        "drawn.svg": SVG,
        "vast.png": vast_png(),
        "setup.jpg": ELF,
        "empty.jpg": b"",
    }
    for name, data in bad.items():
        (tmp_path / name).write_bytes(data)
    ask_about(page, FOLDER / "cat.jpg", *(tmp_path / name for name in bad), words="cat, dog")
    wait_for_answers(page, 1)
    said = page.locator("#alert [role=alert] li").all_inner_texts()
    assert [sentence.split(":")[0] for sentence in said] == list(bad)
    for sentence in said:
        assert any(
            remedy in sentence for remedy in ("Save it", "Get the file again", "Give an image instead")
        ), sentence
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#samples").scroll_into_view_if_needed()
    assert thumbnails(page) == 1 + len(bad)


def test_files_that_are_not_sent_at_all_are_told_of_at_once_and_the_others_go_on(visit, tmp_path, draw):
    page = visit()
    try_empty(page)
    (tmp_path / "setup.exe").write_bytes(ELF)
    (tmp_path / "huge.jpg").write_bytes(b"\0" * ((LIMITS.image_megabytes << 20) + 1))
    page.set_input_files(IMAGES, [str(tmp_path / "setup.exe"), str(tmp_path / "huge.jpg"), draw("ok.png")])
    told(page, text.page.FILE_MESSAGES["no_picture"].format(name="setup.exe"))
    told(page, text.page.FILE_MESSAGES["too_large"].format(name="huge.jpg", most=LIMITS.image_megabytes))
    page.locator("#samples .thumbnail-item").first.wait_for()
    assert thumbnails(page) == 1
    many = [draw(f"{number}.png", size=(8, 8)) for number in range(LIMITS.samples + 1)]
    page.set_input_files(IMAGES, many)
    told(page, text.page.FILE_MESSAGES["too_many"].format(count=len(many), most=LIMITS.samples))
    page.evaluate(HAND_OVER, ["setup.exe", "application/x-msdownload", "#samples button"])
    told(page, text.page.FILE_MESSAGES["no_picture"].format(name="setup.exe"))
    assert page.locator(".at-sifted").count() == 1, "the sentence before is gone"
    assert thumbnails(page) == 1
    ask_about(page, words="cat, dog")
    wait_for_answers(page, 1)
    assert page.locator(".at-sifted").count() == 0


def test_a_file_dropped_where_none_is_taken_does_not_take_the_place_of_the_page(visit):
    page = visit()
    panel(page, text.page.EXPERIMENTS)
    page.locator("#forget-target-zip").wait_for()
    assert page.evaluate(HAND_OVER, ["cat.jpg", "image/jpeg", "h1"])
    told(page, text.page.FILE_MESSAGES["no_zone"])
    panel(page, text.teach.TAB)
    page.locator("#own").wait_for()
    assert page.evaluate(HAND_OVER, ["cat.jpg", "image/jpeg", "h1"])
    assert page.locator(".at-sifted").filter(visible=True).count() == 0


def test_a_thousand_files_at_once_are_counted_and_not_sent(visit, draw):
    page = visit()
    panel(page, text.trying.TAB)
    one = draw("one.png", size=(8, 8))
    sent = []
    page.on("request", lambda request: sent.append(request.url) if "/upload" in request.url else None)
    page.set_input_files("#samples input[type=file]", [one] * 1000)
    told(page, "1000 files", str(LIMITS.samples))
    assert sent == []
    assert thumbnails(page, "#samples") == len(FEW_SHOT_EXAMPLES[0].request.samples)


def test_zips_that_swell_climb_out_or_are_none_leave_the_lesson_as_it_was(
    visit, zipped, archive, tmp_path, draw
):
    page = visit()
    start_empty(page)
    picture = Path(draw("ok.png")).read_bytes()
    bomb = zipped("bomb.zip", [(f"{name}/1.png", b"\0" * (60 << 20)) for name in "ab"])
    climbing = zipped("climbing.zip", [("../../a/1.png", picture), ("../../b/1.png", picture)])
    (tmp_path / "words.zip").write_text("only words")
    (tmp_path / "photos.rar").write_text("only words")
    for bad in (bomb, climbing, tmp_path / "words.zip"):
        upload(page, "#lesson-zip", bad)
        page.locator("#teach-alert [role=alert]").filter(has_text=bad.name).wait_for()
        wait_for_names(page, ["", ""])
    upload(page, "#lesson-zip", tmp_path / "photos.rar")
    told(page, text.page.FILE_MESSAGES["other_ending"].format(name="photos.rar", ending=".zip"))
    upload(page, "#lesson-zip", archive)
    wait_for_names(page, ["blue", "red"])
    page.wait_for_function("!document.querySelector('#teach-alert [role=alert], .at-sifted')")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_recipe_for_another_bank_is_refused_and_the_result_stays(visit, tmp_path, width):
    page = visit(width=width)
    panel(page, text.trying.TAB)
    verdict = page.locator("#run .at-verdict").inner_text()
    panel(page, text.result.TAB_TAKE)
    recipe = atlas.Recipe.load(FEW_SHOT_EXAMPLES[0].path / RECIPE)
    other = tmp_path / "other.atlas.safetensors"
    dataclasses.replace(recipe, bank_fingerprint="0" * 64).save(other)
    upload(page, "#bring", other)
    told(page, other.name, "adapt anew")
    assert page.locator("#run .at-verdict").inner_text() == verdict
    assert page.locator("#lines").is_visible()


def test_a_class_name_of_five_hundred_letters_is_refused_with_the_bound(visit, colours):
    page = visit(width=390)
    start_own(page, colours)
    page.fill(NAME.format(1), "x" * 500)
    page.click("#adapt")
    told(page, "500")
    wait_until_in_sight(page, "#teach-alert [role=alert]")  # though the button is far below
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert thumbnails(page, "#pictures-1") == 3
