"""A program that measures how much memory `paper` needs for some images and for five times as many.

    python -m tests.adapt.streaming_memory FOLDER        # one sub-folder per class; prints JSON

It counts anonymous memory, which is what the process holds itself. Pages of the file that the pixels are
mapped from are the system's: it takes them back whenever it needs them.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from atlas_engine import runtime
from atlas_engine.adapt import samplers, trainable_part, unlabelled
from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.adapt.unlabelled import TestTimeConfig
from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.data import image_files, preprocess
from atlas_engine.data.folders import ClassFolder, read_folder
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

SIZE = 224


def main(folder: Path) -> None:
    # what is mapped and streamed from 500 MB and 1,000 images on is so from the first image here
    preprocess.IN_MEMORY_NBYTES = 0
    image_files.MOST_IN_MEMORY = 0
    # small parts, so that one more of them in memory is no news
    for module in (trainable_part, samplers, unlabelled):
        setattr(module, "IMAGES_AT_ONCE", 2)  # noqa: B010
    engine, whole = make_engine(), read_folder(folder)
    bank = tiny_bank(engine.backbone.visual)
    few_shot, test_time = FewShotConfig(steps=2, batch=4), TestTimeConfig(steps=2, epochs=0, batch=4)

    def adapt(part: ClassFolder) -> dict[str, int]:
        support, _ = Support.read(part, most_in_memory=0)
        with peak_memory() as labelled:
            engine.few_shot(support, method="paper", config=few_shot, bank=bank).result()
        with peak_memory() as plain:
            run = engine.test_time(
                support.images, support.classes, objective="paper", config=test_time, bank=bank
            )
            run.result()
        return {"images": len(support), "few_shot": labelled[0], "test_time": plain[0]}

    # the fewer ones first, and twice: what is loaded or allocated once is no memory of the images
    few = every(whole, 5)
    measured = [adapt(few), adapt(few), adapt(whole)]
    sys.stdout.write(json.dumps(measured[1:]))


def make_engine() -> Atlas:
    """A session with a small random ViT for images of CLIP's size."""
    runtime.ensure_torchvision()
    import open_clip

    torch.manual_seed(0)
    vision = {"layers": 2, "width": 32, "patch_size": 32, "image_size": SIZE, "head_width": 16}
    text = {"context_length": 8, "vocab_size": 64, "width": 32, "heads": 2, "layers": 1}
    visual = open_clip.CLIP(embed_dim=16, vision_cfg=vision, text_cfg=text).visual.eval()
    shape = Preprocessing(size=SIZE, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    return Atlas(replace(tiny_engine().backbone, visual=visual, preprocessing=shape))


def every(folder: ClassFolder, step: int) -> ClassFolder:
    return replace(folder, items=folder.items[::step])


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """A list that has the largest anonymous memory of the process, in bytes, at the end."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], anonymous_nbytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def anonymous_nbytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem"))) * 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]))
