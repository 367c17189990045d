"""How soon the page stands in a real browser. Without Chromium or playwright there is nothing to tell.

Knows nothing of what the page is for.
"""

from __future__ import annotations

import shutil
import time

from studies.load_test.promises import Promise
from studies.load_test.server import Server

__all__ = ["of_the_page"]

PAGE_SECONDS = 3.0
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
PARTS = (".at-verdict", "#class-2", "#adapt")  # the page comes in pieces


def of_the_page(server: Server) -> list[Promise]:
    """Seconds from the first request to the worked example in sight, by the first visitor that there is."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return []
    if found is None:
        return []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        page = browser.new_page()
        began = time.monotonic()
        page.goto(server.address)
        for part in PARTS:
            page.wait_for_selector(part)
        took = time.monotonic() - began
        browser.close()
    return [Promise("page ready after the server is", took, PAGE_SECONDS, "s")]
