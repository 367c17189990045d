"""Every control that a visitor can set says in a short sentence what it is for."""

from __future__ import annotations

import gradio as gr
import pytest

from app.limits import LIMITS
from app.page import build
from app.session import OpenedModel

CONTROLS = (gr.Dropdown, gr.Number, gr.Radio, gr.Slider, gr.Textbox)
MOST = 270  # characters


@pytest.fixture(scope="module")
def controls(engine):
    """Those in sight: the ones of the endpoints never are, and absent task vectors have no slider."""
    blocks = build(OpenedModel(engine)).blocks.values()
    return [one for one in blocks if isinstance(one, CONTROLS) and not _hidden(one)]


def test_every_control_has_a_label_and_a_help(controls):
    names = [one for one in controls if one.label.startswith("Class ")]  # the sentence above them is for all
    assert 0 < len(names) <= LIMITS.rows
    others = [one for one in controls if one not in names]
    assert len(others) > 15
    for one in others:
        assert one.label, one.elem_id
        assert one.info, one.label
        assert len(one.info) <= MOST, one.info


def _hidden(one):
    """Whether nobody ever sees it: it is hidden itself, or in a hidden row, as those of the endpoints."""
    if one.visible in (False, "hidden"):
        return True
    while one is not None and not isinstance(one, gr.Blocks):
        if isinstance(one, gr.Row) and one.visible is False:
            return True
        one = one.parent
    return False
