"""Folders from a visitor's own machine, chosen in a real browser: as a phone or a camera leaves them."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from app import text
from app.examples import FEW_SHOT_EXAMPLES
from app.limits import LIMITS
from tests.browser.steps import panel, start_empty, upload, wait_for_names

pytestmark = pytest.mark.browser

UPRIGHT = 6  # of EXIF's Orientation: the camera was turned by a quarter


@pytest.fixture
def photo(tmp_path):
    """A picture as a phone takes it: many pixels, several megabytes, and a turn that EXIF tells of."""
    speckles = np.random.default_rng(0).integers(0, 256, (3000, 4000, 3), dtype=np.uint8)
    told = Image.Exif()
    told[0x0112] = UPRIGHT
    Image.fromarray(speckles).save(tmp_path / "photo.jpg", quality=60, exif=told)
    return (tmp_path / "photo.jpg").read_bytes()


@pytest.fixture
def holiday(tmp_path, photo):
    """Two folders of such pictures, among all that lies about there."""
    folder = tmp_path / "holiday"
    for name in ("beach", "forest"):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            (folder / name / f"{number}.jpg").write_bytes(photo)
        (folder / name / "film.mp4").write_bytes(b"film" * 1000)
        (folder / name / ".hidden.jpg").write_bytes(b"hidden")
    (folder / "notes.txt").write_text("not a picture")
    assert 20 * len(photo) > LIMITS.file_megabytes << 20, "as they are they are too much"
    return folder


def test_a_folder_of_phone_photos_fills_the_rows_and_a_line_tells_how_far_it_is(visit, holiday):
    page = visit()
    start_empty(page)
    page.evaluate(
        """() => {
            window.lines = [];
            const look = () => document.querySelectorAll(".at-packing[role=status]")
                .forEach((line) => window.lines.push(line.textContent));
            new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
        }"""
    )
    upload(page, "#lesson-folder", holiday)
    wait_for_names(page, ["beach", "forest"])
    page.wait_for_function(
        "document.querySelector('#lesson-summary').textContent.includes('2 classes, 20 images')"
    )
    page.locator("#pictures-1 .thumbnail-item").nth(9).wait_for()
    lines = page.evaluate("window.lines")
    assert text.page.FILE_MESSAGES["packing"].format(name="holiday", done=19, count=20) in lines
    assert page.locator(".at-packing").count() == 0
    assert page.get_by_role("alert").count() == 0
    sides = page.evaluate(
        """async () => {
            const picture = document.querySelector("#pictures-1 .thumbnail-item img");
            const kept = await createImageBitmap(await (await fetch(picture.src)).blob());
            return [kept.width, kept.height];
        }"""
    )
    assert sides[0] == LIMITS.packed_side, "made smaller"
    assert sides[1] > sides[0], "and upright"


def test_a_folder_that_cannot_be_taken_is_told_of_by_its_name_before_it_is_read(visit, tmp_path, draw):
    page = visit()
    panel(page, text.trying.TAB)
    sent = []
    page.on("request", lambda request: sent.append(request.url) if "/upload" in request.url else None)
    bare, many, large = (tmp_path / name for name in ("bare", "many", "large"))
    for folder in (bare, many, large):
        (folder / "a").mkdir(parents=True)
    (bare / "a" / "film.mp4").write_bytes(b"film")
    for number in range(LIMITS.samples + 1):
        Image.new("RGB", (8, 8)).save(many / "a" / f"{number}.png")
    (large / "a" / "scan.png").write_bytes(b"\0" * ((LIMITS.image_megabytes << 20) + 1))
    words = text.page.FILE_MESSAGES
    for folder, sentence in (
        (bare, words["no_pictures"].format(name="bare")),
        (many, words["many_pictures"].format(name="many", count=LIMITS.samples + 1, most=LIMITS.samples)),
        (large, words["too_large"].format(name="scan.png", most=LIMITS.image_megabytes)),
    ):
        upload(page, "#samples-folder", folder)
        page.get_by_role("alert").filter(has_text=sentence).wait_for()
    assert sent == []
    assert page.locator("#samples .thumbnail-item").count() == len(FEW_SHOT_EXAMPLES[0].request.samples)


def test_a_zip_that_is_too_large_is_told_to_come_as_a_folder(visit, tmp_path):
    page = visit()
    start_empty(page)
    with (tmp_path / "holiday.zip").open("wb") as file:
        file.truncate((LIMITS.file_megabytes << 20) + 1)
    upload(page, "#lesson-zip", tmp_path / "holiday.zip")
    said = text.page.FILE_MESSAGES["large_zip"].format(name="holiday.zip", most=LIMITS.file_megabytes)
    page.get_by_role("alert").filter(has_text=said).wait_for()
