"""Images that are streamed: the same activations and answers as in memory, and no memory for more of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image as PILImage

from atlas_engine import engine as engine_module
from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.adapt.samplers import UnlabelledSampler, Views
from atlas_engine.adapt.streamed_activations import StreamedActivations, split_activations, take_rows
from atlas_engine.adapt.trainable_part import FrozenSplit
from atlas_engine.adapt.unlabelled import TestTimeConfig
from atlas_engine.data import preprocess
from atlas_engine.data.augment import STRONG
from atlas_engine.data.image_files import ImageFiles
from atlas_engine.data.support import Support
from atlas_engine.errors import ConfigError, SupportError
from atlas_engine.runtime import generator
from tests.drawn import COLOURS, ROOT, write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

PIXELS = torch.randint(0, 256, (11, 3, 32, 32), dtype=torch.uint8, generator=generator(0))
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streamed") / "set"
    write_pictures(folder, {"red": 4, "blue": 4, "dark_green": 4})
    return folder


def test_streamed_activations_are_those_in_memory_in_any_part():
    streamed = StreamedActivations(PIXELS, lambda images: images + 1, device=CPU)
    whole = PIXELS.float() / 255 + 1
    for size in (1, 4, 64):
        assert torch.equal(torch.cat(list(split_activations(streamed, size))), whole)
    rows, mask = torch.tensor([7, 0, 7]), torch.arange(11) % 3 == 0
    assert torch.equal(take_rows(streamed, rows), take_rows(whole, rows))
    assert torch.equal(take_rows(streamed, mask), take_rows(whole, mask))
    assert len(streamed) == 11


def test_a_streamed_random_view_is_the_same_in_every_pass():
    view = StreamedActivations(PIXELS, lambda images: images, device=CPU, view=STRONG, seed=3)
    first, again = (torch.cat(list(view.split(4))) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, PIXELS.float() / 255)


def test_a_tower_with_a_frozen_prefix_keeps_its_activations():
    backbone = tiny_engine().backbone
    whole, split = FrozenSplit(backbone, share=1.0), FrozenSplit(backbone, share=0.4)
    assert isinstance(whole.clean_activations(PIXELS, stream=True), StreamedActivations)
    assert isinstance(whole.clean_activations(PIXELS, stream=False), torch.Tensor)
    kept = split.clean_activations(PIXELS, stream=True)
    assert isinstance(kept, torch.Tensor)
    assert torch.equal(kept, split.activations(PIXELS.float() / 255))


def test_a_sampler_without_strong_views_needs_a_function_that_draws_them():
    with pytest.raises(ConfigError, match="there are no strong views"):
        UnlabelledSampler(Views(PIXELS.float(), None, None), size=4)


@pytest.mark.parametrize("labelled", [True, False])
def test_images_from_files_teach_the_same_as_images_in_memory(labelled, photos, monkeypatch):
    engine = tiny_engine()
    bank = tiny_bank(engine.backbone.visual, size=0.5)

    def learn(support):
        if labelled:
            config = FewShotConfig(steps=2, batch=6)
            return engine.few_shot(support, method="paper", config=config, bank=bank).result()
        config = TestTimeConfig(steps=2, epochs=0, batch=6, lr=0.03)
        run = engine.test_time(support.images, support.classes, objective="paper", config=config, bank=bank)
        return run.result()

    kept = learn(Support.from_folder(photos))
    streamed, _ = Support.read(photos, most_in_memory=0)
    assert isinstance(streamed.images, ImageFiles)
    monkeypatch.setattr(preprocess, "IN_MEMORY_NBYTES", 0)
    assert bool(kept.coefficients.values.any())
    assert learn(streamed).recipe == kept.recipe


def test_reading_many_images_shows_progress_and_can_be_stopped(photos, monkeypatch):
    monkeypatch.setattr(engine_module, "BATCH", 5)
    engine, (support, _) = tiny_engine(), Support.read(photos, most_in_memory=0)
    bank = tiny_bank(engine.backbone.visual)
    config = FewShotConfig(steps=1, batch=4)
    run = engine.few_shot(support, method="paper", config=config, bank=bank, validation=support)
    reading = [step for step in run if step.phase == "read"]
    assert [(step.index, step.of) for step in reading] == 2 * [(0, 12), (5, 12), (10, 12)]
    # a run that is stopped while it reads has nothing to give
    stopped = engine.test_time(support.images, support.classes, objective="paper", bank=bank)
    next(iter(stopped))
    stopped.cancel()
    with pytest.raises(SupportError, match="stopped when 5 of 12 images had been read"):
        stopped.result()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what a process holds itself")
def test_five_times_the_images_need_hardly_more_memory(tmp_path):
    """At 224 px, 96 images more would be 14 MB of pixels, 58 MB of floats a view, 19 MB of decoded files.

    The bounds are a few parts of two images, in which all are computed (1.2 MB each). Strong views, which are
    blurred, make many copies of a part for a moment, and more passes are more likely to be caught at it.
    """
    for name, colour in COLOURS.items():
        first = tmp_path / name / "0.png"
        first.parent.mkdir()
        PILImage.new("RGB", (256, 256), colour).save(first)
        for index in range(1, 40):
            os.link(first, first.with_stem(str(index)))
    printed = subprocess.run(
        [sys.executable, "-m", "tests.adapt.streaming_memory", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"MALLOC_ARENA_MAX": "1"},  # else each thread may keep some MiB of its own, or not
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    few, many = json.loads(printed)
    assert (few["images"], many["images"]) == (24, 120)
    for method, most in (("few_shot", 10), ("test_time", 40)):
        grown = (many[method] - few[method]) / 2**20
        assert grown < most, f"{method} took {grown:.0f} MiB more"
