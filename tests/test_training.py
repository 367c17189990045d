"""From a folder of images to a task vector, on a small real model."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch

from atlas_engine.bank import fingerprint
from atlas_engine.bank.vector import VECTOR_KINDS
from atlas_engine.data.folders import read_folder
from atlas_engine.engine import Atlas
from atlas_engine.errors import BankError, ConfigError, SupportError
from atlas_engine.runtime import drain
from atlas_engine.training import TrainSettings, train_vector
from tests.drawn import write_pictures
from tests.engines import tiny_engine

QUICK = TrainSettings(steps=15, batch=8, lr=1e-2, warm_up=2, measure_every=5, jitter=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_pictures(
        tmp_path_factory.mktemp("data") / "colours", {"red": 12, "blue": 12, "dark_green": 12}
    )


@pytest.fixture(scope="module")
def vector(folder):
    return drain(train_vector(tiny_engine(), folder, name="colours", settings=QUICK))


def test_a_vector_lifts_the_accuracy_on_images_held_out(vector, folder):
    info = vector.info
    assert info.accuracy_after >= 0.8 > info.accuracy_before
    assert vector.norm() > 0
    facts = info.provenance
    assert (info.dataset, facts["classes"], facts["images"]) == ("colours", "3", "36")
    counts = [int(facts[f"{part}_images"]) for part in ("train", "val", "test")]
    assert counts == [27, 3, 6]
    assert json.loads(facts["settings"]) == QUICK.as_dict()


def test_a_vector_is_tied_to_its_base_and_gives_back_the_accuracy_it_claims(vector, folder):
    engine = tiny_engine()
    visual = engine.backbone.visual
    assert vector.base == fingerprint(dict(visual.named_parameters()))
    assert set(vector.blocks) == {name for name, _ in visual.named_parameters()}
    adapted = copy.deepcopy(visual)
    adapted.load_state_dict({name: base + vector.blocks[name] for name, base in visual.state_dict().items()})
    changed = Atlas(replace(engine.backbone, visual=adapted))
    predictions = changed.predict([item.source for item in folder.items], folder.display_names)
    labels = torch.tensor([item.label for item in folder.items])
    assert predictions.accuracy(labels) >= 0.8


def test_the_centroid_is_the_mean_feature_of_the_training_images(vector, folder):
    engine = tiny_engine()
    whole = engine.features(engine.read_images([item.source for item in folder.items])).mean(dim=0)
    centroid = torch.tensor(vector.info.centroid)
    assert torch.cosine_similarity(centroid, whole, dim=0) > 0.99  # 27 of the 36 images, of like classes


def test_the_same_training_gives_the_same_vector_and_its_record(vector, folder):
    again = drain(train_vector(tiny_engine(), folder, name="colours", settings=QUICK))
    assert again.digest() == vector.digest()
    assert again.info == vector.info


def test_a_stopped_training_resumes_to_the_same_vector(vector, folder, tmp_path):
    settings = replace(QUICK, save_every=4)
    work = train_vector(tiny_engine(), folder, name="colours", settings=settings, state=tmp_path / "state")
    for moment in work:
        if moment.step is not None and moment.step.index == 9:
            break
    work.close()
    assert (tmp_path / "state").is_file()
    steps = []
    rest = train_vector(tiny_engine(), folder, name="colours", settings=settings, state=tmp_path / "state")
    while True:
        try:
            moment = next(rest)
        except StopIteration as end:
            resumed = end.value
            break
        steps += [moment.step.index] if moment.step else []
    assert steps == list(range(9, 16))
    assert resumed.digest() == vector.digest()


def test_other_images_are_another_training(folder, tmp_path):
    state = tmp_path / "state"
    settings = replace(QUICK, save_every=1)
    work = train_vector(tiny_engine(), folder, name="colours", settings=settings, state=state)
    next(moment for moment in work if moment.step)
    work.close()
    fewer = replace(folder, items=folder.items[1:])
    with pytest.raises(BankError, match="another data"):
        drain(train_vector(tiny_engine(), fewer, name="colours", settings=settings, state=state))


def test_the_work_tells_what_it_does(folder):
    moments = list(train_vector(tiny_engine(), folder, name="colours", settings=replace(QUICK, steps=2)))
    assert list(dict.fromkeys(moment.what for moment in moments)) == ["reading", "measuring", "training"]
    assert all(0 <= moment.done <= moment.of for moment in moments)
    assert [moment.step.index for moment in moments if moment.step] == [1, 2]


@pytest.mark.parametrize("kind", VECTOR_KINDS)
def test_a_vector_says_how_it_was_made(folder, kind):
    settings = replace(QUICK, kind=kind, steps=2)
    assert drain(train_vector(tiny_engine(), folder, name="colours", settings=settings)).info.kind == kind


def test_tracks_are_never_split(tmp_path):
    write_pictures(tmp_path / "films", {"red": 8, "blue": 8})
    for path in sorted((tmp_path / "films").rglob("*.png")):
        path.rename(path.with_name(f"{int(path.stem) // 4}_{path.name}"))
    films = read_folder(tmp_path / "films", track_pattern=r"^(\d+)_")
    facts = drain(
        train_vector(tiny_engine(), films, name="films", settings=replace(QUICK, steps=1))
    ).info.provenance
    assert [facts[f"{part}_images"] for part in ("train", "val", "test")] == ["8", "0", "8"]


def test_at_most_so_many_images_of_a_class_are_taken(folder):
    settings = replace(QUICK, steps=1, max_per_class=5)
    facts = drain(train_vector(tiny_engine(), folder, name="few", settings=settings)).info.provenance
    assert facts["images"] == "15"


def test_better_class_names_make_another_head(folder):
    def before(**names):
        settings = replace(QUICK, steps=1)
        work = train_vector(tiny_engine(), folder, name="n", settings=settings, class_names=names)
        return [moment.step.loss for moment in work if moment.step]

    assert before() != before(red="the colour of fire")
    with pytest.raises(SupportError, match=r"class folder of colours 'rot' is not known"):
        before(rot="red")
    with pytest.raises(SupportError, match="class name 'blue' stands twice"):
        before(red="blue")


@pytest.mark.parametrize("name", ["", "a/b", "x" * 65, "line\nbreak"])
def test_a_name_that_is_no_file_name_is_refused(folder, name):
    with pytest.raises(ConfigError, match="a vector cannot be called"):
        next(train_vector(tiny_engine(), folder, name=name, settings=QUICK))


def test_a_class_of_one_image_is_named_before_anything_is_read(tmp_path):
    folder = write_pictures(tmp_path / "set", {"red": 5, "blue": 1})
    with pytest.raises(SupportError, match=r"class 'blue' has 1 image, but at least 2 are needed"):
        next(train_vector(tiny_engine(), folder, name="colours", settings=QUICK))
