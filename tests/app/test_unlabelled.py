"""Photos without labels: the handler behind the tab, on a small real model with donors; and its endpoint."""

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
from app import roll_text
from app.examples import LESSONS, ROLLS
from app.handlers.choices import OBJECTIVES, Choices, RollChoices, from_query, roll_from_query, to_query
from app.handlers.lesson import SampleFile
from app.handlers.takeaway import command_lines, python_lines
from app.handlers.unlabelled import Roll, adapt_roll
from app.limits import LIMITS
from app.run_cards import verdict_html
from app.state import Runs
from atlas_engine.adapt import methods
from tests.drawn import COLOURS

NAMES = tuple(name.replace("_", " ") for name in COLOURS)
LEARNED = RollChoices("entropy", 3)


@pytest.fixture(scope="module")
def folder(squares, tmp_path_factory):
    """Twelve photos of three colours in one folder, under names whose order a computer would get wrong."""
    root = tmp_path_factory.mktemp("roll")
    for place, file in enumerate(sorted((squares / "teach").rglob("*.png")), start=1):
        shutil.copy(file, root / f"{place}.png")
    return root


@pytest.fixture(scope="module")
def roll(folder):
    return Roll(tuple(SampleFile(str(path)) for path in sorted(folder.iterdir())), NAMES)


@pytest.fixture(scope="module")
def states(small, roll):
    return list(adapt_roll(small, roll, LEARNED))


@pytest.fixture
def sure(monkeypatch):
    """Let twelve be many, and a random model know something and grow sure."""
    for bound, value in {"FEWEST_IMAGES": 8, "CONFIDENCE_RISE": 1.0, "INFORMED_IF_INCOMPLETE": -1.0}.items():
        monkeypatch.setattr(f"atlas_engine.adapt.collapse.{bound}", value)


def phases(states):
    return [phase for phase, _ in groupby(state.phase for state in states)]


def test_a_roll_is_read_looked_at_learned_from_and_compared_photo_by_photo(states, roll):
    assert phases(states) == ["read", "look", "learn", "done"]
    shares = [state.share for state in states]
    assert shares == sorted(shares)
    kept = states[-1].kept
    assert len(kept.comparison) == len(roll.photos) == 12
    assert kept.estimates == ()
    assert kept.losses
    assert kept.choices == LEARNED


def test_the_library_makes_the_same_recipe_of_the_same_folder(small, states, folder):
    kept, found = states[-1].kept, {"engine": small}
    code = python_lines(kept).replace("my_photos", str(folder))
    for line in code.splitlines():
        wanted = ("import", "from", "photos =", "result = engine")
        if line.strip().startswith(wanted):
            exec(textwrap.dedent(line), found)
    assert found["result"].recipe == kept.recipe
    assert "atlas adapt test-time my_photos --classes 'red,blue,dark green' --objective entropy --seed 3" in (
        command_lines(kept)
    )


def test_a_session_holds_the_photos_as_small_as_the_model_sees_them(small, states):
    size = small.backbone.preprocessing.size
    assert {photo.picture.pixels.shape for photo in states[-1].kept.samples} == {(size, size, 3)}


@pytest.mark.usefixtures("sure")
def test_automatic_learns_in_proportion_where_some_names_may_be_missing(small, roll, monkeypatch):
    monkeypatch.setattr("atlas_engine.adapt.collapse.SPREAD_OF_ALL", 1.1)
    monkeypatch.setattr("atlas_engine.adapt.collapse.SPREAD", 1.1)
    seen = list(adapt_roll(small, roll))
    assert phases(seen) == ["read", "look", "learn", "done"]
    kept = seen[-1].kept
    assert kept.helped is None
    assert kept.recipe.method == "entropy+proportioned"
    assert len(kept.comparison) == len(roll.photos)


def test_a_roll_back_keeps_zero_shot_and_is_shown_with_its_reason(small, roll):
    *_, last = adapt_roll(small, roll)
    assert last.kept.helped is False
    assert last.kept.comparison.changed == ()
    assert "Zero-shot was kept, because 12 pictures are too few to learn from" in verdict_html(last.kept)


def test_what_is_told_of_a_photos_class_is_counted_but_never_learned_from(small, roll, states):
    told = tuple(SampleFile(photo.path, NAMES[place % 3]) for place, photo in enumerate(roll.photos))
    *_, last = adapt_roll(small, Roll(told, NAMES), LEARNED)
    assert last.kept.recipe == states[-1].kept.recipe
    assert set(last.kept.truth) == set(NAMES)


def test_a_run_that_is_stopped_keeps_the_best_so_far(small, roll):
    runs, learned = Runs(), 0
    with runs.sign("visitor") as sign:
        for state in adapt_roll(small, roll, LEARNED, sign=sign):
            if state.phase == "learn":
                learned += 1
                assert not runs.stop("another visitor")
                assert runs.stop("visitor")
    assert learned == 1
    assert state.kept.stopped
    assert len(state.kept.comparison) == len(roll.photos)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_method_on_the_tab_has_a_name_and_is_known_to_the_engine(objective):
    assert roll_text.METHOD_NAMES[objective]
    assert objective == methods.AUTO or objective in methods.UNLABELLED_METHODS


def test_a_photo_that_cannot_be_read_is_left_out_and_none_at_all_is_refused(small, roll, tmp_path):
    (tmp_path / "words.jpg").write_text("only words")
    bad = SampleFile(str(tmp_path / "words.jpg"))
    *_, last = adapt_roll(small, Roll((bad, *roll.photos[:3]), NAMES))
    assert len(last.kept.samples) == 3
    assert last.left_out[0].startswith("words.jpg:")
    with pytest.raises(atlas.AtlasError, match=r"None of the photos .* words\.jpg"):
        list(adapt_roll(small, Roll((bad,), NAMES)))


@pytest.mark.parametrize(
    ("photos", "names", "sentence"),
    [
        (0, NAMES, "no photo yet"),
        (LIMITS.roll + 1, NAMES, f"{LIMITS.roll + 1} photos"),
        (3, ("red",), "one class name"),
        (3, tuple(map(str, range(LIMITS.classes + 1))), f"{LIMITS.classes + 1} class names"),
        (3, ("red", "Red"), "twice"),
        (3, ("red", "x" * 500), "500"),
    ],
)
def test_what_cannot_be_adapted_to_gets_a_sentence(small, roll, photos, names, sentence):
    with pytest.raises(atlas.AtlasError, match=sentence):
        list(adapt_roll(small, Roll(roll.photos[:1] * photos, names)))


def test_a_link_carries_the_names_and_settings_to_its_own_tab_and_no_other():
    pairs = parse_qsl(to_query(["otter", "a & b"], LEARNED)[1:])
    assert roll_from_query(pairs) == (("otter", "a & b"), LEARNED)
    assert from_query(pairs)[0] == ()
    assert roll_from_query(parse_qsl(to_query(["otter"], Choices())[1:]))[0] == ()
    assert roll_from_query([("objective", "rm -rf"), ("seed", "-1")]) == ((), RollChoices())


def test_an_example_is_a_whole_lesson_without_its_labels():
    example = LESSONS[0]
    roll = Roll(example.photos, example.lesson.classes)
    assert len(roll.photos) == example.lesson.total
    assert {photo.truth for photo in roll.photos} == set(roll.classes)


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
    with pytest.raises(AppError, match="no photo yet"):
        client.predict(photos=[], classes="red, blue", api_name="/adapt_unlabelled")


def test_the_first_example_is_answered_better_and_the_others_keep_zero_shot(engine):
    gains = []
    for example in ROLLS:
        *_, last = adapt_roll(engine, Roll(example.photos, example.classes))
        kept = last.kept
        truth = torch.tensor([example.classes.index(name) for name in kept.truth])
        before, after = (
            int((side.probs.argmax(dim=1) == truth).sum())
            for side in (kept.comparison.zero_shot, kept.comparison.adapted)
        )
        gains.append((kept.recipe.method, after - before))
    first, *others = gains
    assert first[0] == "entropy+balanced", "both kinds are seen to be there"
    assert first[1] >= 5
    assert others == [("zero-shot", 0)] * len(others)
