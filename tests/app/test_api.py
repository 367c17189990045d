"""The app as a program sees it: gradio_client against the running server."""

from __future__ import annotations

import zipfile

import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

import atlas_engine as atlas
from app import text
from app.examples import ASK_EXAMPLES, FEW_SHOT_EXAMPLES
from app.handlers.ask import as_json, ask
from app.handlers.inside import list_task_vectors
from app.prepared_examples import RECIPE

PARAMETERS = {
    "/adapt": ["archive", "samples", "method", "steps", "seed", "lr", "templates"],
    "/adapt_unlabelled": ["photos", "classes", "objective", "seed", "templates"],
    "/bank": [],
    "/choose": ["model"],
    "/compare": ["samples", "recipe"],
    "/correct": ["archive", "image", "label"],
    "/forget": ["target", "control", "keep", "seed"],
    "/export": ["recipe", "format", "int8"],
    "/inside": ["recipe"],
    "/models": [],
    "/predict": ["images", "classes"],
    "/share": ["recipe"],
    "/stop": [],
    "/try": ["images", "recipe", "classes"],
    "/turn": ["samples", "recipe", "tasks", "layers"],
    "/weights": ["recipe"],
}


@pytest.fixture(scope="module")
def client(server):
    return Client(server.address, verbose=False)


def test_the_public_endpoints_have_stable_names_and_are_documented(client):
    named = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    found = {name: [part["parameter_name"] for part in one["parameters"]] for name, one in named.items()}
    assert found == PARAMETERS
    assert all("Returns" in one["description"] or "returns" in one["description"] for one in named.values())


def test_every_parameter_of_an_endpoint_has_a_description_of_its_own():
    described = {f"/{name}": list(about) for name, about in text.api.PARAMETERS.items()}
    assert described == PARAMETERS
    sentences = [about for one in text.api.PARAMETERS.values() for about in one.values()]
    assert all(sentence.endswith(".") and len(sentence) > 20 for sentence in sentences)


def test_a_program_tries_images_at_once_corrects_one_and_shares_the_recipe(client, archive, squares, draw):
    example = FEW_SHOT_EXAMPLES[0]
    recipe = handle_file(example.path / RECIPE)
    samples = [handle_file(sample.path) for sample in example.request.samples[:3]]
    rows = client.predict(images=samples, recipe=recipe, classes="", api_name="/try")["rows"]
    wanted = client.predict(samples=samples, recipe=recipe, api_name="/compare")["rows"]
    for row, same in zip(rows, wanted, strict=True):
        assert row["adapted"]["label"] == same["adapted"]["label"]
        assert row["adapted"]["prob"] == pytest.approx(same["adapted"]["prob"], abs=1e-4)
    (asked,) = client.predict(
        images=[handle_file(draw("a.png"))], recipe=None, classes="red, blue", api_name="/try"
    )["rows"]
    assert asked["adapted"] is None
    assert asked["zero_shot"]["label"] in ("red", "blue")
    path, facts = client.predict(
        archive=handle_file(archive), image=handle_file(draw("wrong.png")), label="red", api_name="/correct"
    )
    assert facts["counts"] == {"blue": 4, "dark green": 4, "red": 5}
    again, facts = client.predict(
        archive=handle_file(path), image=handle_file(draw("new.png")), label="teal", api_name="/correct"
    )
    assert facts["counts"]["teal"] == 1
    with pytest.raises(AppError, match="no class for the image"):
        client.predict(
            archive=handle_file(again), image=handle_file(draw("x.png")), label=" ", api_name="/correct"
        )
    shared = client.predict(recipe=recipe, api_name="/share")
    assert shared["link"].startswith("?shared=")
    assert shared["classes"] == list(example.request.classes)


def test_the_client_gets_the_same_answers_as_the_engine(client, engine):
    example = ASK_EXAMPLES[0]
    files = [handle_file(path) for path in example.paths]
    answered = client.predict(images=files, classes=example.class_text, api_name="/predict")
    *_, here = ask(engine, example.paths, example.class_text)
    for row, wanted in zip(answered["rows"], as_json(here)["rows"], strict=True):
        assert (row["image"], row["label"]) == (wanted["image"], wanted["label"])
        assert row["prob"] == pytest.approx(
            wanted["prob"], abs=1e-4
        )  # batches of another size round otherwise


def test_a_program_adapts_takes_the_recipe_and_compares_with_it(client, archive, squares):
    samples = [handle_file(path) for path in sorted((squares / "try").rglob("*.png"))]
    result, recipe = client.predict(
        archive=handle_file(archive), samples=samples, steps=2, seed=0, api_name="/adapt"
    )
    assert result["verdict"]
    assert result["left_out"] == []
    assert {one["method"] for one in result["estimates"]} >= {"zero-shot"}
    assert len(result["rows"]) == len(samples)
    again = client.predict(samples=samples, recipe=handle_file(recipe), api_name="/compare")
    for row, wanted in zip(again["rows"], result["rows"], strict=True):
        assert row["adapted"]["label"] == wanted["adapted"]["label"]
        assert row["adapted"]["prob"] == pytest.approx(wanted["adapted"]["prob"], abs=1e-4)


def test_a_program_looks_inside_a_recipe_turns_a_task_vector_and_takes_the_weights(client, squares, engine):
    recipe = handle_file(FEW_SHOT_EXAMPLES[0].path / RECIPE)
    inside = client.predict(recipe=recipe, api_name="/inside")
    shares = [one["share"] for one in inside["task_vectors"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0, abs=1e-4)
    assert set(inside["map"]["rows"]) == set(engine.bank.tasks)
    samples = [handle_file(FEW_SHOT_EXAMPLES[0].request.samples[place].path) for place in (0, 5)]
    same = client.predict(samples=samples, recipe=recipe, tasks={}, layers={}, api_name="/turn")["rows"]
    assert all(row["as_learned"] == row["now"] for row in same)
    out = dict.fromkeys(engine.bank.tasks, 0)
    rows = client.predict(samples=samples, recipe=recipe, tasks=out, layers={}, api_name="/turn")["rows"]
    assert any(row["as_learned"]["prob"] != row["now"]["prob"] for row in rows)
    assert client.predict(recipe=recipe, api_name="/weights").endswith("-image-tower.safetensors")
    exported = client.predict(recipe=recipe, format="openclip", int8=False, api_name="/export")
    assert "head.safetensors" in zipfile.ZipFile(exported).namelist()
    with pytest.raises(AppError, match=r"format 'onx' is not known\. Did you mean 'onnx'"):
        client.predict(recipe=recipe, format="onx", int8=False, api_name="/export")
    for wrong in (
        {"unicorns": 0},
        ["mnist"],
        {inside["task_vectors"][0]["name"]: 9},
        {inside["task_vectors"][0]["name"]: "much"},
    ):
        with pytest.raises(AppError, match=r"is no (task vector|strength)"):
            client.predict(samples=samples, recipe=recipe, tasks=wrong, layers={}, api_name="/turn")


def test_a_program_sees_progress_and_stops_its_own_run_with_the_best_so_far(client, server, archive):
    job = client.submit(
        archive=handle_file(archive), samples=[], method="atlas", steps=200, api_name="/adapt"
    )
    stranger = Client(server.address, verbose=False)
    phases = []
    for facts, _ in job:
        phases.append(facts.get("phase"))
        if phases[-1] == "learn" and phases.count("learn") == 1:
            assert stranger.predict(api_name="/stop") == {"stopped": False}
            assert client.predict(api_name="/stop") == {"stopped": True}
    result, recipe = job.result()
    assert phases[0] == "read"
    assert phases.count("learn") < 200
    assert result["stopped"]
    assert recipe.endswith(".safetensors")


def test_what_cannot_be_adapted_to_comes_back_as_a_sentence(client, draw, tmp_path):
    (tmp_path / "no.zip").write_text("only words")
    (tmp_path / "no.safetensors").write_text("only words")
    with pytest.raises(AppError, match=r"no\.zip: is not a zip"):
        client.predict(archive=handle_file(tmp_path / "no.zip"), samples=[], api_name="/adapt")
    with pytest.raises(AppError, match="not a recipe"):
        client.predict(
            samples=[handle_file(draw("a.png"))],
            recipe=handle_file(tmp_path / "no.safetensors"),
            api_name="/compare",
        )


def test_a_bad_file_is_left_out_and_the_rest_is_answered(client, draw, tmp_path):
    (tmp_path / "words.jpg").write_text("only words")
    files = [handle_file(tmp_path / "words.jpg"), handle_file(draw("red.png"))]
    answered = client.predict(images=files, classes="cat\ndog", api_name="/predict")
    assert [row["image"] for row in answered["rows"]] == ["red.png"]
    assert answered["left_out"][0].startswith("words.jpg:")


def test_a_question_that_cannot_be_asked_comes_back_as_a_sentence(client, draw):
    with pytest.raises(AppError, match="one class name"):
        client.predict(images=[handle_file(draw("a.png"))], classes="cat", api_name="/predict")
    with pytest.raises(AppError, match="no image"):
        client.predict(images=[], classes="cat, dog", api_name="/predict")


def test_a_program_is_told_of_the_bank_as_the_page_tells_it(client, engine):
    told = client.predict(api_name="/bank")
    names = [vector.name for vector in list_task_vectors(engine)]
    assert [vector["name"] for vector in told["task_vectors"]] == names
    assert all(
        vector["trained_on"] and vector["before"] <= vector["after"] <= 1 for vector in told["task_vectors"]
    )
    similarity_map = told["similarities"]
    assert set(similarity_map["rows"]) == set(similarity_map["columns"]) == set(names)
    assert (
        0 < similarity_map["values"][0][1] == similarity_map["values"][1][0] < 1
    )  # cosines; a task vector's with itself is left out


def test_a_program_sets_the_learning_rate_and_one_of_nought_is_refused(client, archive):
    with pytest.raises(AppError, match="nothing is learned"):
        client.predict(archive=handle_file(archive), samples=[], steps=1, lr=0, api_name="/adapt")


def test_a_program_chooses_templates_and_a_wrong_name_comes_back_as_a_sentence(client, archive):
    asked = {"archive": handle_file(archive), "samples": [], "method": "text-probe", "api_name": "/adapt"}
    _, recipe = client.predict(**asked, templates="a {}.\nthe {}.")
    assert atlas.Recipe.load(recipe).templates == ("a {}.", "the {}.")
    with pytest.raises(AppError, match="Did you mean 'cars'"):
        client.predict(**asked, templates="carz")
