"""Replicas on Ray give the answers of this process, whatever happens to one of them; if not, they say why."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest
import torch
from gradio_client import Client, handle_file

import atlas_engine as atlas
from app import text
from app.handlers.few_shot import FewShotRequest, adapt_few_shot
from app.handlers.settings import FewShotSettings
from app.handlers.trying import try_images
from app.handlers.uploads import ClassRow, UploadedImage
from app.predictors import Predictors
from app.priority_lock import DEVICE
from app.replicas.client import BusyError, ReplicaClient
from app.replicas.engine import ReplicatedAtlas
from app.replicas.results import NoResultError, id_of
from app.session import StopSignal
from studies.load_test.server import serve
from tests.drawn import ROOT

pytestmark = pytest.mark.ray

APPLES = ROOT / "assets" / "examples" / "apples"
CLIENTS, QUESTIONS = 50, 2
SHORT = {"method": "text-probe", "config": atlas.FewShotConfig(steps=2, views=1)}
LONG = {"method": "atlas", "config": atlas.FewShotConfig(steps=5000, views=1)}  # until it is stopped


@pytest.fixture(scope="module")
def support():
    """Two images of two classes each."""
    folders = sorted((APPLES / "teach").iterdir())[:2]
    files = [(label, path) for label, folder in enumerate(folders) for path in sorted(folder.iterdir())[:2]]
    images = tuple(atlas.read_image(path, name=path.name) for _, path in files)
    return atlas.Support(images, tuple(label for label, _ in files), tuple(one.name for one in folders))


@pytest.fixture(scope="module")
def local(engine):
    """The engine of this process, which computes on one thread as each replica does: sums have one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield engine
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def remote(local, replicas):
    return ReplicatedAtlas.of(local, replicas.client)


@pytest.fixture(scope="module")
def recipe():
    return atlas.Recipe.load(APPLES / "recipe.atlas.safetensors")


def test_answers_are_those_of_this_process(local, remote, support, recipe):
    here, there = (one.predict(support.images, ["apple", "pear", "plum"]) for one in (local, remote))
    assert torch.equal(here.probs, there.probs)
    assert (here.names, here.classes) == (there.names, there.classes)
    here, there = (one.compare(support.images, recipe) for one in (local, remote))
    assert torch.equal(here.adapted.probs, there.adapted.probs)
    assert torch.equal(here.zero_shot.probs, there.zero_shot.probs)


def test_a_lesson_is_that_of_this_process_and_any_replica_answers_by_its_id(local, remote, support):
    run = remote.few_shot(support, **SHORT)
    steps, result = list(run), run.result()
    expected = local.few_shot(support, **SHORT).result()
    assert result.recipe == expected.recipe
    assert result.verdict == expected.verdict
    assert [step.phase for step in steps] == [step.phase for step in expected.history]
    assert [step.loss for step in result.history] == [step.loss for step in expected.history]

    recipe_id = id_of(result.recipe.to_bytes())  # learned by the replica of adapt, answered by one of try
    assert remote.client.get(recipe_id) == result.recipe
    there = remote.client.compare(remote._shrink(support.images), recipe_id)
    assert torch.equal(there.adapted.probs, local.compare(support.images, result.recipe).adapted.probs)


def test_the_page_learns_and_tries_with_replicas(remote, tmp_path):
    rows = tuple(
        ClassRow(folder.name, tuple(str(path) for path in sorted(folder.iterdir())[:2]))
        for folder in sorted((APPLES / "teach").iterdir())[:2]
    )
    settings = FewShotSettings(method="text-probe", steps=2)
    *_, last = adapt_few_shot(remote, FewShotRequest(rows), settings, stop_signal=StopSignal())
    assert last.result is not None
    shown = [UploadedImage(str(path)) for path in sorted((APPLES / "try").rglob("*.jpg"))[:2]]
    *_, tried = try_images(remote, Predictors(), last.result, shown)
    assert tried.result.comparison is not None
    assert len(tried.result.comparison) == len(shown)


def test_a_lesson_that_is_stopped_ends_with_what_it_has(remote, support):
    run, began = remote.few_shot(support, **LONG), time.monotonic()
    for step in run:
        if step.phase == "learn":
            run.cancel()
    result = run.result()
    assert result.outcome is atlas.Outcome.cancelled
    assert len([step for step in result.history if step.phase == "learn"]) < LONG["config"].steps
    assert time.monotonic() - began < 100


def test_a_full_queue_refuses_in_words_and_says_when_to_come_back(remote, support):
    first = remote.few_shot(support, **LONG)
    next(iter(first))  # the one replica learns
    refused, results = [], []

    def learn():
        try:
            results.append(remote.few_shot(support, **SHORT).result())
        except BusyError as error:
            refused.append(error)

    threads = [threading.Thread(target=learn) for _ in range(8)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while len(refused) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    first.cancel()
    first.result()
    for thread in threads:
        thread.join(timeout=120)
    assert [str(error) for error in refused] == [text.replicas.BUSY] * 4
    assert {error.retry_seconds for error in refused} == {3.0}
    assert len(results) == 4  # those that waited, as many as the queue has room for


def test_whoever_leaves_gives_the_replica_back(remote, support):
    run = remote.few_shot(support, **LONG)
    next(iter(run))
    run._steps.close()  # without a word: the connection is gone
    assert remote.few_shot(support, **SHORT).result().recipe.method == "text-probe"


def test_fifty_clients_get_right_answers_or_words_though_a_replica_is_killed(
    local, remote, replicas, support, recipe
):
    client, expected = remote.client, local.compare(support.images, recipe).adapted.probs
    images, recipe_id = remote._shrink(support.images), client.put(recipe)
    answers, wrong, words = [], [], set()

    def ask():
        for _ in range(QUESTIONS):
            while True:
                try:
                    found = client.compare(images, recipe_id).adapted.probs
                except BusyError as error:
                    words.add(str(error))
                    time.sleep(0.3)
                    continue
                except Exception as error:  # whatever a client may not see
                    wrong.append(repr(error))
                    return
                answers.append(torch.equal(found, expected))
                break

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    while len(answers) < 5:
        time.sleep(0.01)
    os.kill(replicas.processes("try")[0], signal.SIGKILL)
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)  # nothing hangs
    assert wrong == []
    assert words <= {text.replicas.BUSY, text.replicas.LOST}
    assert answers == [True] * (CLIENTS * QUESTIONS)


def test_a_page_that_waits_for_replicas_gives_its_turn_on_the_device_back(replicas):
    client = ReplicaClient(
        replicas.client.host, replicas.client.port, token=replicas.token, waiting=DEVICE.paused
    )
    computed = threading.Event()

    def compute():
        with DEVICE.hold(urgent=True):
            computed.set()

    with DEVICE.hold(urgent=False):
        other = threading.Thread(target=compute)
        other.start()
        time.sleep(0.2)  # it waits for its turn
        assert not computed.is_set()
        client.facts()
        assert computed.is_set()
    other.join()


def test_the_backend_is_all_that_the_page_needs(replicas, support, tmp_path):
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for folder in sorted((APPLES / "teach").iterdir())[:2]:
            for path in sorted(folder.iterdir())[:2]:
                packed.write(path, f"{folder.name}/{path.name}")
    image = str(next((APPLES / "try").rglob("*.jpg")))
    address = f"ray://{replicas.client.address}"
    with serve(tmp_path, ATLAS_BACKEND=address, RAY_AUTH_TOKEN=replicas.token) as page:
        client = Client(page.address, verbose=False)
        told, recipe = client.predict(handle_file(archive), samples=[], steps=2, api_name="/adapt")
        tried = client.predict([handle_file(image)], handle_file(recipe), "", api_name="/try")
        with urlopen(f"{page.address}/readyz") as ready:
            assert json.loads(ready.read())["replicas"] == "ok"
    learned = Path(recipe).read_bytes()
    assert replicas.client.get(id_of(learned)) == atlas.Recipe.from_bytes(learned)  # a replica put it there
    assert told["kept"]
    assert [row["image"] for row in tried["rows"]] == [Path(image).name]


# ---- the door


def ask(client, method, path, body=b"", *, token):
    connection = http.client.HTTPConnection(client.host, client.port, timeout=60)
    connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    told = answer.status, json.loads(answer.read())
    connection.close()
    return told


@pytest.mark.parametrize("path", ["/facts", "/results/" + "0" * 64, "/"])
def test_without_the_token_there_is_no_answer(replicas, path):
    assert ask(replicas.client, "GET", path, token="wrong") == (401, {"error": text.replicas.NO_TOKEN})


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/elsewhere", b"", 404),
        ("POST", "/elsewhere", b"", 404),
        ("GET", "/results/../../token", b"", 422),
        ("POST", "/predict", b"noise", 422),
        ("POST", "/adapt", b"\x80\x04K\x01.", 422),  # a pickle
    ],
)
def test_what_cannot_be_answered_is_refused_in_words(replicas, method, path, body, status):
    found, told = ask(replicas.client, method, path, body, token=replicas.token)
    assert found == status
    assert len(told["error"]) > 30


def test_a_recipe_that_is_not_in_the_store_is_told(remote, support):
    with pytest.raises(NoResultError, match="no result of that id"):
        remote.client.compare(remote._shrink(support.images), "0" * 64)


def test_replicas_hold_no_copy_of_the_bank_of_their_own(replicas):
    """They map its file, so that their machine has it in memory once."""
    private = [kilobytes for process in replicas.processes() for kilobytes in private_bank_memory(process)]
    assert len(private) >= 4  # predict, two of try, adapt
    assert set(private) == {0}


def private_bank_memory(process):
    """Kilobytes that a process has copied of each mapping of the bundled bank."""
    found, inside = [], False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if "-" in name:
            inside = "/assets/bank/" in line
            found += [0] if inside else []
        elif inside and name in ("Private_Dirty", "Anonymous"):
            found[-1] += int(value.split()[0])
    return found
