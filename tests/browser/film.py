"""The pictures in the README and on shared links, taken from the running app: `make pictures`.

    python -m tests.browser.film FOLDER      first-page.png, card.png and film.png, into a folder

The film strip is a whole journey in ten frames: the first screen, teaching by files, learning, trying, a
mistake that is corrected, looking inside and taking away. Everything in it happens as it is pictured.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

from app import text
from app.examples import APPLES
from studies.load_test.server import serve
from tests.browser.conftest import READY
from tests.browser.steps import ANSWERS, give, panel, start_empty, wait_for_images, wait_until_it_hears
from tests.chromium import find_chromium, open_chromium

FRAME = (1000, 720)  # pixels of a frame as it is taken
CARD = (1200, 630)
COLUMNS, SCALE, GAP = 5, 0.4, 8


def take_film(page) -> list[Path]:
    """Screenshots of the journey, in order."""
    folder, frames = Path(tempfile.mkdtemp(prefix="atlas-film-")), []

    def keep():
        wait_for_images(page)
        frames.append(folder / f"{len(frames)}.png")
        page.screenshot(path=frames[-1])

    rows = APPLES.request.rows[:3]
    samples = [sample.path for sample in APPLES.request.samples if sample.label in {row.name for row in rows}]
    keep()  # the first screen
    page.locator("#at-switch").uncheck()
    keep()  # without what it borrowed
    start_empty(page)
    give(page, 1, rows[0].name, list(rows[0].paths))
    keep()  # a first class
    page.click("#add-class")
    for place, row in enumerate(rows[1:], start=2):
        give(page, place, row.name, list(row.paths))
    keep()  # three classes
    page.click("#adapt")
    page.get_by_text("Learning: step").wait_for()
    keep()  # learning, in Try
    page.locator("#run .at-verdict").wait_for(timeout=300_000)
    keep()  # the verdict
    page.set_input_files("#samples input[type=file]", samples)
    page.locator(ANSWERS).nth(len(samples) - 1).wait_for()
    keep()  # any image is answered
    page.locator(f"{ANSWERS.split(',', maxsplit=1)[0]} select").first.select_option(rows[0].name)
    page.locator("#learn-again").wait_for()
    keep()  # a mistake is corrected
    panel(page, text.result.TAB_INSIDE)
    page.locator("#inside-lead").wait_for()
    keep()
    panel(page, text.result.TAB_TAKE)
    page.locator("#share").wait_for()
    keep()
    return frames


def join_frames(frames: list[Path], target: Path) -> None:
    """One picture of all frames, in rows of five."""
    width, height = (round(side * SCALE) for side in FRAME)
    rows = -(-len(frames) // COLUMNS)
    strip = Image.new("RGB", (COLUMNS * (width + GAP) - GAP, rows * (height + GAP) - GAP), "white")
    for place, file in enumerate(frames):
        with Image.open(file) as frame:
            small = frame.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        strip.paste(small, ((place % COLUMNS) * (width + GAP), (place // COLUMNS) * (height + GAP)))
    strip.quantize(128).save(target, optimize=True)


def main(folder: Path) -> int:
    """Take all pictures into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    chromium = find_chromium()
    if chromium is None:
        sys.exit("Chromium is not installed.")
    with (
        tempfile.TemporaryDirectory() as files,
        serve(Path(files)) as server,
        open_chromium(chromium) as browser,
    ):
        for size, name in ((CARD, "card"), ((1280, 820), "first-page")):
            page = _open(browser, server.address, size)
            wait_for_images(page)
            page.screenshot(path=folder / f"{name}.png")
        frames = take_film(_open(browser, server.address, FRAME))
        join_frames(frames, folder / "film.png")
    return 0


def _open(browser, address, size):
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    page.set_default_timeout(60_000)
    wait_until_it_hears(page, lambda: page.goto(address))
    for part in READY:
        page.wait_for_selector(part)
    return page


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
