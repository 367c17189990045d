"""HTML made from answers, alerts and examples: escaped, ranked, and told in words."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from app import alerts, cards, donor_text, text
from app.examples import EXAMPLES, LESSONS
from app.handlers.ask import Answer, Asked
from app.limits import LIMITS
from tests.serving import ROOT

EVIL = "<img src=x onerror='alert(1)'>\"&"


class Reader(HTMLParser):
    """Collects the tags, their attributes and the words of some HTML."""

    def __init__(self, html):
        super().__init__()
        self.tags = []
        self.words = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def asked(*answers, left_out=()):
    return Asked(total=len(answers), classes=3, answers=answers, left_out=left_out)


def test_a_card_shows_the_picture_and_ranks_its_words_with_numbers():
    answer = Answer("/up/my cat.jpg", "my cat.jpg", (("cat", 0.9), ("dog", 0.098), ("owl", 0.002)))
    read = Reader(cards.answers_html(asked(answer)))
    assert [image["src"] for image in read.of("img")] == ["gradio_api/file=/up/my%20cat.jpg"]
    assert "my cat.jpg" in read.of("img")[0]["alt"]
    assert len(read.of("ol")) == 1
    assert [word for word in read.words if word in ("cat", "dog", "owl", "90%", "10%", "<1%")] == [
        "cat",
        "90%",
        "dog",
        "10%",
        "owl",
        "<1%",
    ]


def test_only_the_first_few_guesses_are_listed():
    answer = Answer("a.jpg", "a.jpg", tuple((f"c{n}", 0.1) for n in range(10)))
    assert len(Reader(cards.answers_html(asked(answer))).of("li")) == LIMITS.shown


def test_nothing_from_a_visitor_becomes_markup():
    answer = Answer(f"/up/{EVIL}", EVIL, ((EVIL, 1.0),))
    parts = (
        cards.answers_html(asked(answer)),
        cards.status_html(EVIL),
        alerts.alert_html(EVIL),
        alerts.left_out_html([EVIL]),
        alerts.banner_html(EVIL),
    )
    for part in parts:
        read = Reader(part)
        assert all("onerror" not in attributes for _, attributes in read.tags), part
        assert len(read.of("img")) == (1 if part is parts[0] else 0)
    assert EVIL in Reader(parts[0]).words


def test_no_answers_make_no_cards():
    assert cards.answers_html(asked()) == ""


def test_each_example_is_a_button_with_its_pictures_and_words():
    read = Reader(cards.examples_html(EXAMPLES))
    buttons = read.of("button")
    assert [button["data-example"] for button in buttons] == ["0", "1", "2"]
    for button, example in zip(buttons, EXAMPLES, strict=True):
        assert button["type"] == "button"
        assert example.class_text in button["aria-label"]
    assert len(read.of("img")) == sum(len(example.files) for example in EXAMPLES)


def test_each_lesson_is_a_button_with_a_picture_of_its_first_classes():
    read = Reader(cards.lessons_html(LESSONS))
    assert [button["data-example"] for button in read.of("button")] == ["0", "1"]
    assert all("Classes: " in button["aria-label"] for button in read.of("button"))
    assert len(read.of("img")) == 8


def test_alerts_are_announced_and_name_what_was_left_out():
    read = Reader(alerts.left_out_html(["a.gif: is a GIF.", "b.jpg: is empty."]))
    assert read.of("div")[0]["role"] == "alert"
    assert {"a.gif: is a GIF.", "b.jpg: is empty."} <= set(read.words)
    assert alerts.left_out_html([]) == alerts.NOTHING


def test_a_refusal_gets_a_capital_but_a_file_keeps_its_name():
    assert "Class name 'x'" in alerts.alert_html("class name 'x' stands twice.").replace("&#x27;", "'")
    assert "my cat.jpg: is empty." in alerts.left_out_html(["my cat.jpg: is empty."])


def test_percentages_never_pretend_to_be_certain():
    assert [text.percent(prob) for prob in (0.0, 0.004, 0.0051, 0.974, 0.996, 1.0)] == [
        "0%",
        "<1%",
        "1%",
        "97%",
        ">99%",
        "100%",
    ]


def test_no_page_text_names_a_web_address():
    assert not re.search(
        r"https?://", cards.header_html() + cards.footnote_html() + cards.examples_html(EXAMPLES)
    )


def test_every_donor_of_the_bundled_bank_is_described_as_its_own_document_says(engine):
    told = (ROOT / "assets" / "bank" / "README.md").read_text(encoding="utf-8")
    assert set(donor_text.PICTURES) == set(engine.bank.tasks)
    for name, pictures in donor_text.PICTURES.items():
        assert f"| {name} | {pictures} |" in told
    assert donor_text.donor_data("mine", "", "") == "mine"
