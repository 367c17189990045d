"""Photos without labels: the handler behind the tab, on a small model with task vectors; and its endpoint."""

from __future__ import annotations

import shutil
import textwrap
from itertools import groupby
from urllib.parse import parse_qsl

import pytest
import torch
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

import atlas_engine as atlas
from app import text
from app.examples import FEW_SHOT_EXAMPLES, UNLABELLED_EXAMPLES
from app.handlers.settings import (
    OBJECTIVES,
    FewShotSettings,
    UnlabelledSettings,
    few_shot_from_query,
    to_query,
    unlabelled_from_query,
)
from app.handlers.takeaway import python_code, shell_commands
from app.handlers.unlabelled import UnlabelledRequest, adapt_unlabelled
from app.handlers.uploads import UploadedImage
from app.limits import LIMITS
from app.session import Runs
from app.views import render_verdict
from atlas_engine.adapt import methods
from tests.drawn import COLOURS

NAMES = tuple(name.replace("_", " ") for name in COLOURS)
LEARNED = UnlabelledSettings("entropy", 3)


@pytest.fixture(scope="module")
def folder(squares, tmp_path_factory):
    """Twelve photos of three colours in one folder, under names whose order a computer would get wrong."""
    root = tmp_path_factory.mktemp("roll")
    for place, file in enumerate(sorted((squares / "teach").rglob("*.png")), start=1):
        shutil.copy(file, root / f"{place}.png")
    return root


@pytest.fixture(scope="module")
def unlabelled_request(folder):
    return UnlabelledRequest(tuple(UploadedImage(str(path)) for path in sorted(folder.iterdir())), NAMES)


@pytest.fixture(scope="module")
def states(small, unlabelled_request):
    return list(adapt_unlabelled(small, unlabelled_request, LEARNED))


@pytest.fixture
def sure(monkeypatch):
    """Let twelve be many, and a random model know something and grow sure."""
    for bound, value in {"FEWEST_IMAGES": 8, "CONFIDENCE_RISE": 1.0, "INFORMED_IF_INCOMPLETE": -1.0}.items():
        monkeypatch.setattr(f"atlas_engine.adapt.collapse.{bound}", value)


def phases(states):
    return [phase for phase, _ in groupby(state.phase for state in states)]


def test_a_roll_is_read_looked_at_learned_from_and_compared_photo_by_photo(states, unlabelled_request):
    assert phases(states) == ["read", "encode", "learn", "done"]
    shares = [state.share for state in states]
    assert shares == sorted(shares)
    saved = states[-1].result
    assert len(saved.comparison) == len(unlabelled_request.images) == 12
    assert saved.estimates == ()
    assert saved.losses
    assert saved.settings == LEARNED


def test_the_library_makes_the_same_recipe_of_the_same_folder(small, states, folder):
    saved, found = states[-1].result, {"engine": small}
    code = python_code(saved).replace("my_photos", str(folder))
    for line in code.splitlines():
        wanted = ("import", "from", "photos =", "result = engine")
        if line.strip().startswith(wanted):
            exec(textwrap.dedent(line), found)
    assert found["result"].recipe == saved.recipe
    assert "atlas adapt test-time my_photos --classes 'red,blue,dark green' --objective entropy --seed 3" in (
        shell_commands(saved)
    )


def test_a_session_holds_the_photos_as_small_as_the_model_sees_them(small, states):
    size = small.backbone.preprocessing.size
    assert {photo.image.pixels.shape for photo in states[-1].result.samples} == {(size, size, 3)}


@pytest.mark.usefixtures("sure")
def test_automatic_learns_in_proportion_where_some_names_may_be_missing(
    small, unlabelled_request, monkeypatch
):
    monkeypatch.setattr("atlas_engine.adapt.collapse.SPREAD_AT_MOST", 1.1)
    monkeypatch.setattr("atlas_engine.adapt.collapse.SPREAD", 1.1)
    seen = list(adapt_unlabelled(small, unlabelled_request))
    assert phases(seen) == ["read", "encode", "learn", "done"]
    saved = seen[-1].result
    assert saved.helped is None
    assert saved.recipe.method == "entropy+proportioned"
    assert len(saved.comparison) == len(unlabelled_request.images)


def test_a_roll_back_keeps_zero_shot_and_is_shown_with_its_reason(small, unlabelled_request):
    *_, last = adapt_unlabelled(small, unlabelled_request)
    assert last.result.helped is False
    assert last.result.comparison.changed == ()
    assert "Zero-shot was kept, because 12 pictures are too few to learn from" in render_verdict(last.result)


def test_what_is_told_of_a_photos_class_is_counted_but_never_learned_from(small, unlabelled_request, states):
    told = tuple(
        UploadedImage(photo.path, NAMES[place % 3]) for place, photo in enumerate(unlabelled_request.images)
    )
    *_, last = adapt_unlabelled(small, UnlabelledRequest(told, NAMES), LEARNED)
    assert last.result.recipe == states[-1].result.recipe
    assert set(last.result.labels) == set(NAMES)


def test_a_run_that_is_stopped_keeps_the_best_so_far(small, unlabelled_request):
    runs, learned = Runs(), 0
    with runs.begin("visitor") as stop_signal:
        for state in adapt_unlabelled(small, unlabelled_request, LEARNED, stop_signal=stop_signal):
            if state.phase == "learn":
                learned += 1
                assert not runs.stop("another visitor")
                assert runs.stop("visitor")
    assert learned == 1
    assert state.result.stopped
    assert len(state.result.comparison) == len(unlabelled_request.images)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_method_on_the_tab_has_a_name_and_is_known_to_the_engine(objective):
    assert text.unlabelled.METHOD_NAMES[objective]
    assert objective == methods.AUTO or objective in methods.UNLABELLED_METHODS


def test_a_photo_that_cannot_be_read_is_left_out_and_none_at_all_is_refused(
    small, unlabelled_request, tmp_path
):
    (tmp_path / "words.jpg").write_text("only words")
    bad = UploadedImage(str(tmp_path / "words.jpg"))
    *_, last = adapt_unlabelled(small, UnlabelledRequest((bad, *unlabelled_request.images[:3]), NAMES))
    assert len(last.result.samples) == 3
    assert last.left_out[0].startswith("words.jpg:")
    with pytest.raises(atlas.AtlasError, match=r"None of the images .* words\.jpg"):
        list(adapt_unlabelled(small, UnlabelledRequest((bad,), NAMES)))


@pytest.mark.parametrize(
    ("photos", "names", "sentence"),
    [
        (0, NAMES, "no image yet"),
        (LIMITS.unlabelled_images + 1, NAMES, f"{LIMITS.unlabelled_images + 1} images"),
        (3, ("red",), "one class name"),
        (3, tuple(map(str, range(LIMITS.classes + 1))), f"{LIMITS.classes + 1} class names"),
        (3, ("red", "Red"), "twice"),
        (3, ("red", "x" * 500), "500"),
    ],
)
def test_what_cannot_be_adapted_to_gets_a_sentence(small, unlabelled_request, photos, names, sentence):
    with pytest.raises(atlas.AtlasError, match=sentence):
        list(adapt_unlabelled(small, UnlabelledRequest(unlabelled_request.images[:1] * photos, names)))


def test_a_link_carries_the_names_and_settings_to_its_own_tab_and_no_other():
    pairs = parse_qsl(to_query(["otter", "a & b"], LEARNED)[1:])
    assert unlabelled_from_query(pairs) == (("otter", "a & b"), LEARNED)
    assert few_shot_from_query(pairs)[0] == ()
    assert unlabelled_from_query(parse_qsl(to_query(["otter"], FewShotSettings())[1:]))[0] == ()
    assert unlabelled_from_query([("objective", "rm -rf"), ("seed", "-1")]) == ((), UnlabelledSettings())


def test_an_example_is_a_whole_lesson_without_its_labels():
    example = FEW_SHOT_EXAMPLES[0]
    unlabelled_request = UnlabelledRequest(example.images, example.request.classes)
    assert len(unlabelled_request.images) == example.request.total
    assert {photo.label for photo in unlabelled_request.images} == set(unlabelled_request.classes)


def test_a_program_adapts_without_labels_and_compares_with_the_recipe(server, folder, tmp_path):
    client = Client(server.address, verbose=False)
    photos = [handle_file(path) for path in sorted(folder.iterdir())[:8]]
    job = client.submit(photos=photos, classes=", ".join(NAMES), api_name="/adapt_unlabelled")
    told = [facts for facts, _ in job]
    assert told[0]["phase"] == "read"
    result, recipe = job.result()
    assert result["verdict"]
    assert result["estimates"] == []
    rows = client.predict(samples=photos[:2], recipe=handle_file(recipe), api_name="/compare")["rows"]
    for row in rows:
        (here,) = [one for one in result["rows"] if one["image"] == row["image"]]
        assert row["adapted"]["label"] == here["adapted"]["label"]
        assert row["adapted"]["prob"] == pytest.approx(here["adapted"]["prob"], abs=1e-4)  # other batches
    with pytest.raises(AppError, match="no image yet"):
        client.predict(photos=[], classes="red, blue", api_name="/adapt_unlabelled")


def test_the_first_example_is_answered_better_and_the_others_keep_zero_shot(engine):
    gains = []
    for example in UNLABELLED_EXAMPLES:
        *_, last = adapt_unlabelled(engine, UnlabelledRequest(example.images, example.classes))
        saved = last.result
        truth = torch.tensor([example.classes.index(name) for name in saved.labels])
        before, after = (
            int((side.probs.argmax(dim=1) == truth).sum())
            for side in (saved.comparison.zero_shot, saved.comparison.adapted)
        )
        gains.append((saved.recipe.method, after - before))
    first, *others = gains
    assert first[0] == "entropy+balanced", "both kinds are seen to be there"
    assert first[1] >= 5
    assert others == [("zero-shot", 0)] * len(others)
