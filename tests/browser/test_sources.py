"""Where pictures come from besides files: the camera and the clipboard, in sight, at both widths."""

from __future__ import annotations

import pytest

from tests.browser.steps import wait_for_names

pytestmark = pytest.mark.browser

IN_SIGHT = """([button, zone]) => {
    const [inner, outer] = [button, zone].map((one) => document.querySelector(one).getBoundingClientRect());
    return inner.height > 0 && inner.top >= outer.top && inner.bottom <= outer.bottom;
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_a_picture_is_taken_with_the_camera_and_another_pasted_into_one_class(visit, width, artefacts):
    page = visit(width=width)
    page.context.grant_permissions(["camera", "clipboard-read", "clipboard-write"])
    page.click("#own")
    wait_for_names(page, ["", ""])
    page.wait_for_function("!document.querySelector('#lesson-summary').textContent.includes('16 pictures')")
    zone = page.locator("#pictures-1")
    for label in ("Capture from camera", "Paste from clipboard"):
        assert page.evaluate(IN_SIGHT, [f"#pictures-1 [aria-label='{label}']", "#pictures-1"]), label
    page.screenshot(path=artefacts / f"sources-{width}.png")
    zone.get_by_label("Capture from camera").click()
    zone.get_by_text("Webcam").click()
    page.wait_for_function(
        "document.querySelector('#pictures-1 video').readyState === 4"
    )  # there is something to see
    zone.get_by_label("capture photo").click()
    zone.locator(".thumbnail-item").first.wait_for()
    page.evaluate(
        """() => new OffscreenCanvas(32, 32).getContext("2d").canvas.convertToBlob({ type: "image/png" })
            .then((blob) => navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]))"""
    )
    zone.get_by_label("Paste from clipboard").click()
    zone.locator(".thumbnail-item").nth(1).wait_for()
    page.wait_for_function(
        "document.querySelector('#lesson-summary').textContent.includes('1 class, 2 pictures')"
    )
