"""What the task vectors of the bundled bank were trained on, in plain words."""

from __future__ import annotations

from app.text.language import say

__all__ = ["DATASETS", "training_data"]

DATASETS = {
    "chest-xrays": say("chest X-rays"),
    "cifar10": say("animals and vehicles, small"),
    "clip-art": say("clip art by theme"),
    "clothing": say("garments worn or lying"),
    "dogs": say("dog breeds"),
    "doodles": say("quick line drawings"),
    "emoji-google": say("Google's emoji by theme"),
    "emoji-twitter": say("Twitter's emoji by theme"),
    "fashion-mnist": say("garments, small and grey"),
    "flowers102": say("flowers"),
    "food101": say("dishes"),
    "fruits360": say("fruit on a turntable"),
    "gtsrb": say("traffic signs"),
    "intel": say("landscapes and streets"),
    "mnist": say("handwritten digits"),
    "rsscn7": say("land from above"),
    "signdigits": say("hand signs for digits"),
    "solar-cells": say("electroluminescence of solar cells"),
    "traffic-lamps": say("traffic lights"),
}


def training_data(dataset: str, classes: str, images: str) -> str:
    """What a task vector was trained on; a data set that is not known here goes by its name.

    >>> training_data("gtsrb", "43", "2954")
    'traffic signs: 43 classes, 2954 images'
    """
    counts = [
        *([say("{count} classes", count=classes)] if classes else []),
        *([say("{count} images", count=images)] if images else []),
    ]
    return ": ".join(part for part in (DATASETS.get(dataset, dataset), ", ".join(counts)) if part)
