"""What a visitor's hands do on the page, for tests that read like a visit."""

from __future__ import annotations

from playwright.sync_api import TimeoutError

from app import text

HEARD_AFTER = 6  # presses
STEPS = "#settings input[type=number]"
NAME = "#class-{0} input[type=text], #class-{0} textarea"
NAMES = ".at-class input[type=text], .at-class textarea"
ANSWERS = "#compare .at-pair, #compare .at-card"
FIRST_WORDS = ".at-card .at-guesses li:first-child .at-label"


def wait_until_it_hears(page, load):
    """Load the page, and wait for the answer to its own first event: from then on it hears a press."""
    with page.expect_response(lambda answer: "/run/predict" in answer.url):
        load()


def panel(page, name):
    page.get_by_role("tab", name=name, exact=True).click()


def start_empty(page):
    """Leave the first screen: an empty form, and nothing taught."""
    page.click("#own")
    wait_for_names(page, ["", ""])


def try_empty(page):
    """Turn to Try with nothing taught, and no image."""
    start_empty(page)
    panel(page, text.trying.TAB)
    page.wait_for_selector("#ask")
    page.wait_for_function("!document.querySelector('#samples .thumbnail-item')")


def give(page, place, name, files):
    """Name a class and hand over its images."""
    page.fill(NAME.format(place), name)
    page.set_input_files(f"#pictures-{place} input[type=file]", files)
    page.locator(f"#pictures-{place} .thumbnail-item").nth(len(files) - 1).wait_for()


def wait_for_names(page, names):
    """The classes are called so, and there are no more."""
    page.wait_for_function(
        "([fields, names]) => [...document.querySelectorAll(fields)].map(one => one.value).join() === names",
        arg=[NAMES, ",".join(names)],
    )


def start_own(page, colours, *, steps=2, method=None):
    """Empty the form, give two colours and images to try, and take few steps."""
    try_empty(page)
    adapt_few_shot, samples = colours
    page.set_input_files("#samples input[type=file]", samples)
    page.locator("#samples .thumbnail-item").nth(len(samples) - 1).wait_for()
    panel(page, text.teach.TAB)
    for place, (name, files) in enumerate(adapt_few_shot.items(), start=1):
        give(page, place, name, files)
    page.click("#settings button")
    page.locator(STEPS).first.fill(str(steps))
    page.locator(STEPS).first.press("Tab")
    if method:
        choose_method(page, method)


def choose_method(page, method):
    page.locator("#settings input[role=combobox]").first.click()
    page.get_by_role("option", name=text.teach.METHOD_NAMES[method], exact=True).click()


def wait_until_still(page):
    """No event is about to replace what is in sight: Gradio fades that until the new value comes."""
    page.wait_for_function(
        "![...document.querySelectorAll('.pending')].some((one) => one.offsetParent !== null)"
    )


def wait_until_in_sight(page, *parts):
    """All of these are on the screen, at least where they begin."""
    page.wait_for_function(
        """parts => parts.every((part) => {
            const { top, height } = document.querySelector(part).getBoundingClientRect();
            return height > 0 && top >= 0 && top < innerHeight;
        })""",
        arg=list(parts),
    )


def adapt(page, *, images):
    """Press the button, and wait for a result of that many images."""
    page.click("#adapt")
    wait_for_result(page, images)


def wait_for_result(page, images):
    page.wait_for_function(
        "([count, answers]) => document.querySelector('#run .at-verdict')"
        " && !document.querySelector('#run').textContent.includes('worked example')"
        " && !document.querySelector('#stop-adapting')"
        " && document.querySelectorAll(answers).length === count",
        arg=[images, ANSWERS],
    )


def upload(page, button, file, *, key=None):
    """Press a button that takes a file, and give it one; again, where the page was too new to hear it."""
    for _ in range(HEARD_AFTER):
        try:
            with page.expect_file_chooser(timeout=5000) as chooser:
                page.locator(button).press(key) if key else page.click(button)
        except TimeoutError:
            continue
        chooser.value.set_files(file)
        return
    raise AssertionError(f"{button} does not open a file chooser")


def ask_about(page, *files, words):
    """Type words to choose from, and give images to match to them."""
    if files:
        page.set_input_files("#samples input[type=file]", list(files))
        page.locator("#samples .thumbnail-item").nth(len(files) - 1).wait_for()
    page.fill("#classes textarea", words)
    page.click("#ask")


def wait_for_answers(page, count):
    page.wait_for_function(
        "([line, count]) => document.querySelector('#status [role=status]').textContent.startsWith(line)"
        " && document.querySelectorAll('.at-card').length === count",
        arg=[text.ask.finished(count, 0).split(",")[0], count],
    )


def wait_for_images(page):
    """Every image in sight is there."""
    page.wait_for_function(
        "[...document.images].every(one => !one.offsetParent || (one.complete && one.naturalWidth > 0))"
    )


def press_tab_until(page, found, *, most=80):
    """Press Tab until the script `found` says that the right thing has the focus; returns how often."""
    for presses in range(1, most + 1):
        page.keyboard.press("Tab")
        if page.evaluate(f"(() => {{ const it = document.activeElement; return {found}; }})()"):
            return presses
    raise AssertionError(f"the keyboard does not reach: {found}")
