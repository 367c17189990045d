"""Whether exported models answer as the library does, on images that they were not adapted to.

    for row in measure_exports(engine, support, images, labels, dataset="pets"):
        row.precision, row.same_answers, row.largest_difference

A few images of each class adapt the model; the others are answered by torch and by onnxruntime, from the same
decoded pixels.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from atlas_engine.data.image import Image
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from atlas_engine.exporting.onnx_int8 import quantise
from atlas_engine.exporting.onnx_model import IMAGES, LOGITS, assemble_onnx, make_network_onnx
from studies.grid import StudyRow

__all__ = ["PRECISIONS", "ExportRow", "measure_exports"]

PRECISIONS = ("float32", "int8")
TIMED = 20  # images, of which the median is taken


@dataclass(frozen=True)
class ExportRow(StudyRow):
    """One precision on one data set: how near the ONNX file is to torch, and both to the labels."""

    dataset: str
    precision: str
    images: int
    same_answers: float  # the share of images with the same likeliest class
    largest_difference: float  # of a probability
    accuracy: float  # of the ONNX file
    accuracy_torch: float
    nbytes: int
    milliseconds: float  # per image, one at a time, from decoded pixels


def measure_exports(
    engine: Atlas,
    support: Support,
    images: Sequence[Image],
    labels: Sequence[int],
    *,
    dataset: str,
    method: str,
    seed: int = 0,
) -> Iterator[ExportRow]:
    """A row for each precision, of the model that `method` makes of the support."""
    import onnxruntime

    recipe = engine.few_shot(support, method=method, seed=seed).result().recipe
    wanted = engine.compare(images, recipe).adapted.probs.numpy()  # (N C)
    classifier, truth = engine.classifier(recipe), np.asarray(labels)
    network = make_network_onnx(classifier, images=IMAGES, logits=LOGITS).graph
    for precision in PRECISIONS:
        is_int8 = precision == "int8"
        model = assemble_onnx(classifier, quantise(network) if is_int8 else network, int8=is_int8)
        data = model.SerializeToString()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(data, options)
        answers, seconds = [], []
        for image in images:
            start = time.perf_counter()
            answers.append(session.run(["probabilities"], {"image": image.pixels})[0])
            seconds.append(time.perf_counter() - start)
        found = np.stack(answers)  # (N C)
        yield ExportRow(
            dataset=dataset,
            precision=precision,
            images=len(images),
            same_answers=float((found.argmax(axis=1) == wanted.argmax(axis=1)).mean()),
            largest_difference=float(np.abs(found - wanted).max()),
            accuracy=float((found.argmax(axis=1) == truth).mean()),
            accuracy_torch=float((wanted.argmax(axis=1) == truth).mean()),
            nbytes=len(data),
            milliseconds=1000 * float(np.median(seconds[-TIMED:])),
        )
