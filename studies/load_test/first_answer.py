"""Suite `try`: how soon an image that is dropped in Try is answered, over the network, by a running page."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gradio_client import Client, handle_file

import atlas_engine as atlas
from app.examples import FEW_SHOT_EXAMPLES
from app.prepared_examples import RECIPE
from atlas_engine.data import read_image
from studies.load_test.server import serve
from studies.speed.measure import compare
from studies.speed.report import Bar, Report

__all__ = ["first_answer"]

WARMUP = 2


def first_answer(*, repeat: int = 9) -> Report:
    """Time `/try` with an image that the server has not seen, against the engine's own two answers to it."""
    example = FEW_SHOT_EXAMPLES[0]
    file = example.path / RECIPE
    recipe = atlas.Recipe.load(file)
    paths = [image.path for image in example.images][: WARMUP + repeat]
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder)) as server,
        atlas.open(cache=False) as engine,
    ):
        client = Client(server.address, verbose=False)
        sent, read = iter(paths), iter(paths)

        def dropped() -> str:
            images = [handle_file(next(sent))]
            answer = client.predict(images, handle_file(file), "", api_name="/try")
            return str(answer["rows"][0]["adapted"]["label"])

        def alone() -> str:
            return engine.compare([read_image(next(read))], recipe).adapted.labels[0]

        times = compare(
            {"dropped": dropped, "alone": alone},
            check=lambda label: label in recipe.classes,
            warmup=WARMUP,
            repeat=len(paths) - WARMUP,
            peaks=False,
        )
    return Report(
        name="try",
        what="one image and its recipe sent to the page, answered before and now, each image new to it",
        ceiling="reading the image and the same two answers by the engine, in this process",
        bars=(
            Bar("a dropped image's answer", times.timings["dropped"].median_seconds, "<=", 1.0, "s"),
            Bar("over the network / the engine alone", times.ratio("dropped", "alone"), "<=", 5.0),
        ),
        notes={name: str(timing) for name, timing in times.timings.items()},
    )
