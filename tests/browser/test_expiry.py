"""A result that the server no longer keeps, in a real browser: it is told of."""

from __future__ import annotations

import pytest

from app import text
from app.session import open_engine
from tests.browser.steps import adapt, panel, start_own
from tests.serving import served

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of Gradio's own sockets, when it is closed
    pytest.mark.filterwarnings("ignore:.*no_silent_downcasting"),  # of its own statistics
]


@pytest.fixture(scope="module")
def live():
    """The page on a server of this process, so that the test can be the sweep after half an hour."""
    opened = open_engine()
    with opened.engine, served(opened) as server:
        yield server


def test_a_result_that_expired_is_told_of_and_a_new_one_can_be_had(visit, live, colours):
    page = visit(address=live.address.rstrip("/"))
    panel(page, text.trying.TAB)
    panel(page, text.result.TAB_TAKE)
    page.click("#make-weights")  # of the example, which never expires
    page.locator("#weights:visible").wait_for()
    panel(page, text.teach.TAB)
    start_own(page, colours, method="text-probe")
    adapt(page, images=2)
    panel(page, text.result.TAB_TAKE)
    page.locator("#lines").get_by_text("text-probe").first.wait_for()
    page.click("#make-weights")
    page.locator("#weights-alert [role=alert]").filter(has_text=text.takeaway.NO_BLOCK_MOVED).wait_for()
    holder = live.sessions
    for session in list(holder.session_data):
        holder.delete_state(session)
    page.click("#make-weights")
    page.locator("#weights-alert [role=alert]").filter(has_text=text.result.EXPIRED).wait_for()
    assert page.locator("#weights:visible").count() == 0
    panel(page, text.teach.TAB)
    page.fill("#class-1 input[type=text], #class-1 textarea", "")
    page.click("#adapt")
    page.get_by_role("alert").filter(has_text=text.teach.no_name(1)).wait_for()
    panel(page, text.trying.TAB)
    page.locator("#run").get_by_text(text.result.EXPIRED).wait_for()
    panel(page, text.teach.TAB)
    page.fill("#class-1 input[type=text], #class-1 textarea", "red")
    adapt(page, images=2)
    panel(page, text.result.TAB_TAKE)
    page.locator("#lines").get_by_text("text-probe").first.wait_for()
