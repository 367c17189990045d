"""The app as a program sees it: gradio_client against the running server."""

from __future__ import annotations

import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from app.examples import EXAMPLES
from app.handlers.ask import answer_rows, ask


@pytest.fixture(scope="module")
def client(server):
    return Client(server.address, verbose=False)


def test_predict_is_the_only_public_endpoint_and_is_documented(client):
    named = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert list(named) == ["/predict"]
    assert [part["parameter_name"] for part in named["/predict"]["parameters"]] == ["images", "classes"]
    assert "left_out" in named["/predict"]["description"]


def test_the_client_gets_the_same_answers_as_the_engine(client, engine):
    example = EXAMPLES[0]
    files = [handle_file(path) for path in example.paths]
    answered = client.predict(images=files, classes=example.class_text, api_name="/predict")
    *_, here = ask(engine, example.paths, example.class_text)
    for row, wanted in zip(answered["rows"], answer_rows(here)["rows"], strict=True):
        assert (row["image"], row["label"]) == (wanted["image"], wanted["label"])
        assert row["prob"] == pytest.approx(
            wanted["prob"], abs=1e-4
        )  # batches of another size round otherwise


def test_a_bad_file_is_left_out_and_the_rest_is_answered(client, draw, tmp_path):
    (tmp_path / "words.jpg").write_text("only words")
    files = [handle_file(tmp_path / "words.jpg"), handle_file(draw("red.png"))]
    answered = client.predict(images=files, classes="cat\ndog", api_name="/predict")
    assert [row["image"] for row in answered["rows"]] == ["red.png"]
    assert answered["left_out"][0].startswith("words.jpg:")


def test_a_question_that_cannot_be_asked_comes_back_as_a_sentence(client, draw):
    with pytest.raises(AppError, match="one class name"):
        client.predict(images=[handle_file(draw("a.png"))], classes="cat", api_name="/predict")
    with pytest.raises(AppError, match="no picture"):
        client.predict(images=[], classes="cat, dog", api_name="/predict")
