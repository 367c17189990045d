"""The example of a backend for Label Studio answers as Label Studio's own SDK expects, over HTTP."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request

import pytest

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.bank.bank_file import save_bank
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from atlas_engine.recipe import Recipe
from notebooks.label_studio_backend import Backend, Interface, make_server
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

CHOICES = ("blue", "red", "dark_green")
CONFIG = """<View><Image name="photo" value="$image"/>
<Choices name="colour" toName="photo">{}</Choices></View>""".format(
    "".join(f'<Choice value="{choice}"/>' for choice in CHOICES)
)
LOCAL, UPLOAD = "/data/local-files/?d=red%2F0.png", "/data/upload/3/ab-1.png"


@pytest.fixture
def backend(tmp_path):
    write_pictures(tmp_path / "media", {"red": 4, "blue": 4, "dark_green": 4})
    upload = tmp_path / "media" / "upload" / "3" / "ab-1.png"
    upload.parent.mkdir(parents=True)
    upload.write_bytes((tmp_path / "media" / "blue" / "3.png").read_bytes())
    backbone = tiny_engine().backbone
    save_bank(tiny_bank(backbone.visual), tmp_path / "bank.safetensors")
    engine = Atlas(backbone, bank_path=tmp_path / "bank.safetensors")
    support = Support.from_folder(write_pictures(tmp_path / "set", {"red": 3, "blue": 3}))
    recipe = engine.few_shot(support, method="text-probe", config=FewShotConfig(steps=0)).result().recipe
    path = tmp_path / "colours.atlas.safetensors"
    recipe.save(path)
    return Backend(engine, Recipe.load(path), images=tmp_path / "media", save_to=path, learn_every=4)


@pytest.fixture
def post(backend):
    """A function that posts JSON to a route: the status and the answer."""
    with make_server(backend, port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def ask(route, content=None):
            body = None if content is None else json.dumps(content).encode()
            request = urllib.request.Request(f"http://127.0.0.1:{server.server_address[1]}{route}", body)
            try:
                with urllib.request.urlopen(request) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, json.load(error)

        yield ask
        server.shutdown()


def tasks(*addresses):
    return [{"id": number, "data": {"image": address}} for number, address in enumerate(addresses, start=1)]


def annotation_of(file, choice):
    region = {"from_name": "colour", "to_name": "photo", "type": "choices", "value": {"choices": [choice]}}
    return {
        "action": "ANNOTATION_CREATED",
        "task": {"id": 1, "data": {"image": f"/data/local-files/?d={file}"}},
        "annotation": {"was_cancelled": False, "completed_by": 1, "result": [region]},
        "project": {"id": 1, "label_config": CONFIG},
    }


def test_the_sdk_takes_its_proposals(post):
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason="needs label-studio-sdk")
    from label_studio_sdk.label_interface.objects import PredictionValue
    from label_studio_sdk.types import Prediction

    label_interface = interface.LabelInterface(CONFIG)
    label_interface.validate()
    asked = tasks(LOCAL, UPLOAD)
    for task in asked:
        label_interface.validate_task(task)
    status, answer = post("/predict", {"tasks": asked, "label_config": CONFIG})
    assert status == 200
    assert len(answer["results"]) == 2
    for task, proposal in zip(asked, answer["results"], strict=True):
        assert label_interface.validate_prediction(proposal, return_errors=True) == []
        value = PredictionValue(**proposal)
        assert value.model_version == "colours"
        assert 1 / 2 <= value.score <= 1
        assert Prediction(task=task["id"], **proposal).result == proposal["result"]
    wrong = Interface.read(CONFIG, ("red",)).proposal("red", 0.5, "colours")
    wrong["result"][0]["value"]["choices"] = ["pink"]
    assert label_interface.validate_prediction(wrong, return_errors=True) != []


def test_it_answers_as_the_library_does(post, backend):
    assert post("/health")[1]["status"] == "UP"
    assert post("/setup", {"project": "1", "schema": CONFIG}) == (200, {"model_version": "colours"})
    _, answer = post("/predict", {"tasks": tasks(LOCAL, UPLOAD), "label_config": CONFIG})
    files = [backend.root / "red" / "0.png", backend.root / "upload" / "3" / "ab-1.png"]
    expected = backend.engine.compare(files, backend.recipe).adapted
    proposed = [one["result"][0]["value"]["choices"][0] for one in answer["results"]]
    assert proposed == list(expected.labels)
    scores = [one["score"] for one in answer["results"]]
    assert scores == pytest.approx(expected.probs.amax(dim=1).tolist())


def test_it_learns_on_from_annotations(post, backend, tmp_path):
    for file, choice in (("red/0.png", "red"), ("red/1.png", "red"), ("dark_green/0.png", "dark_green")):
        assert post("/webhook", annotation_of(file, choice)) == (201, {"model_version": "colours"})
    cancelled = annotation_of("blue/0.png", "blue")
    cancelled["annotation"]["was_cancelled"] = True
    assert post("/webhook", cancelled)[1] == {"model_version": "colours"}
    last = annotation_of("dark_green/1.png", "dark_green")
    assert post("/webhook", last) == (201, {"model_version": "colours-1"})
    assert backend.recipe.classes == ("blue", "red", "dark green")
    assert Recipe.load(tmp_path / "colours-1.atlas.safetensors") == backend.recipe
    task = tasks("/data/local-files/?d=dark_green/2.png")
    _, answer = post("/predict", {"tasks": task, "label_config": CONFIG})
    assert answer["results"][0]["model_version"] == "colours-1"
    assert answer["results"][0]["result"][0]["value"]["choices"][0] in CHOICES, "the interface's spelling"


@pytest.mark.parametrize(
    ("route", "content", "sentence"),
    [
        ("/setup", {"schema": CONFIG.replace('"red"', '"pink"')}, "has no choice 'red'"),
        ("/setup", {"schema": "<View/>"}, "no <Choices> for an <Image>"),
        ("/setup", {"schema": "<View>"}, "is no XML"),
        (
            "/predict",
            {"tasks": tasks("/data/local-files/?d=../x"), "label_config": CONFIG},
            "not in the folder",
        ),
        ("/predict", {"tasks": tasks("http://there/1.png"), "label_config": CONFIG}, "not in the folder"),
        ("/predict", [1], "no JSON object"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(post, route, content, sentence):
    status, answer = post(route, content)
    assert status == 400
    assert sentence in answer["detail"]


def test_an_address_that_is_not_there_is_404(post):
    assert post("/train", {})[0] == post("/nothing")[0] == 404
