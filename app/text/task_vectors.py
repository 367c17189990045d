"""What the task vectors of the bundled bank were trained on, in plain words."""

from __future__ import annotations

__all__ = ["DATASETS", "training_data"]

DATASETS = {
    "chest-xrays": "chest X-rays",
    "cifar10": "animals and vehicles, small",
    "clip-art": "clip art by theme",
    "clothing": "garments worn or lying",
    "dogs": "dog breeds",
    "doodles": "quick line drawings",
    "emoji-google": "Google's emoji by theme",
    "emoji-twitter": "Twitter's emoji by theme",
    "fashion-mnist": "garments, small and grey",
    "flowers102": "flowers",
    "food101": "dishes",
    "fruits360": "fruit on a turntable",
    "gtsrb": "traffic signs",
    "intel": "landscapes and streets",
    "mnist": "handwritten digits",
    "rsscn7": "land from above",
    "signdigits": "hand signs for digits",
    "solar-cells": "electroluminescence of solar cells",
    "traffic-lamps": "traffic lights",
}


def training_data(dataset: str, classes: str, images: str) -> str:
    """What a task vector was trained on; a data set that is not known here goes by its name.

    >>> training_data("gtsrb", "43", "2954")
    'traffic signs: 43 classes, 2954 pictures'
    """
    counts = ", ".join(
        part for part in (classes and f"{classes} classes", images and f"{images} pictures") if part
    )
    return ": ".join(part for part in (DATASETS.get(dataset, dataset), counts) if part)
