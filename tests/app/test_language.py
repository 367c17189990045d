"""Words: every sentence of the page has its translation, and a visitor's words need no dictionary."""

from __future__ import annotations

import ast
import os
import re
import string
import subprocess
import sys

import pytest

from app import text
from app.text.language import ENGLISH, FOLDER, available_languages, catalogue, say
from tests.serving import ROOT

LANGUAGES = [language for language in available_languages() if language != ENGLISH]
EXPERT_WORDS = ("zero-shot", "held out", "head", "loss", "coefficient", "logit", "λ", "embedding", "fold")
VISITOR_MODULES = ("home", "teach", "trying", "camera", "share", "ask", "unlabelled")
NOT_SAID = {"api", "language"}  # modules for programs, and the one that translates


def spoken(path):
    """Every sentence that a module says, joined as Python joins it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "say":
            yield ast.literal_eval(node.args[0])


def sentences():
    modules = [path for path in FOLDER.glob("*.py") if path.stem not in NOT_SAID]
    return {sentence for path in modules for sentence in spoken(path)}


def names_in(sentence):
    return sorted(name for _, name, _, _ in string.Formatter().parse(sentence) if name)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_every_sentence_with_the_same_names_and_no_other(language):
    translated = catalogue(language)
    assert set(translated) == sentences()
    for english, other in translated.items():
        assert other.strip(), english
        assert names_in(english) == names_in(other), english


def test_there_is_a_translation():
    assert "de" in LANGUAGES


@pytest.mark.parametrize("module", VISITOR_MODULES)
def test_a_visitor_is_told_no_expert_word(module):
    for sentence in spoken(FOLDER / f"{module}.py"):
        for word in EXPERT_WORDS:
            assert not re.search(rf"\b{re.escape(word)}s?\b", sentence, re.IGNORECASE), (word, sentence)


def test_no_word_of_the_page_stands_outside_of_its_text():
    """Labels and placeholders come from `app.text`, not from the tabs themselves."""
    spoken_by = {"label", "info", "placeholder"}
    for path in (ROOT / "app" / "tabs").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg in spoken_by:
                assert not isinstance(node.value, ast.Constant) or node.value.value is None, path


def test_values_are_filled_in_and_braces_without_values_stay():
    assert say("{count} images", count=3) == "3 images"
    assert say("type one with {} in it") == "type one with {} in it"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_speaks_the_language_it_was_started_with(language):
    code = "from app import text; print(text.teach.TAB, text.result.counts(4, 14, 16), sep='|')"
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "ATLAS_LANGUAGE": language, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    tab, counts = said.split("|")
    assert tab == catalogue(language)[text.teach.TAB]
    assert "4" in counts
    assert counts != text.result.counts(4, 14, 16)
