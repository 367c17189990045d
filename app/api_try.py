"""What programs call to use and mend what was taught: `/try`, `/correct` and `/share`.

`/try` answers images by a recipe, or by class names alone, between the steps of whoever learns.
`/correct` puts an image into its class in a zip to learn from. `/share` keeps a recipe for some days, and
gives the link that opens it on this page.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import text
from app.api import Files, Json, as_files, expose, sample_rows
from app.events import DEVICE, UNPACK, api_errors
from app.handlers import ask as asking
from app.handlers.takeaway import check_recipe, load_recipe
from app.handlers.trying import add_to_class, try_images
from app.handlers.uploads import unpack_classes
from app.limits import LIMITS
from app.predictors import Predictors
from app.session import CurrentModel
from app.shares import Shares
from app.tabs.components import copy_to_cache
from app.tabs.sharing import share_query

__all__ = ["add_try_endpoints"]


def add_try_endpoints(current: CurrentModel, predictors: Predictors, shares: Shares) -> None:
    """Make the endpoints inside the current Blocks."""
    with gr.Row(visible=False):
        images = gr.File(label=text.api.IMAGES, file_count="multiple", type="filepath")
        recipe = gr.File(label=text.api.RECIPE, type="filepath")
        classes = gr.Textbox(label=text.api.CLASSES)
        archive = gr.File(label=text.api.ZIP, type="filepath")
        image = gr.File(label=text.api.IMAGE, type="filepath")
        label = gr.Textbox(label=text.api.LABEL)
        rows, facts = gr.JSON(label=text.api.ROWS), gr.JSON(label=text.api.RESULT)
        corrected = gr.File(label=text.api.ZIP)

        @api_errors
        def answer(images: Files, recipe: str | None, classes: str | None) -> Json:
            engine = current.engine()
            if not recipe:
                *_, asked = asking.ask(engine, list(images or []), classes or "")
                return _asked_rows(asked)
            loaded, _ = load_recipe(engine, recipe, [])
            *_, tried = try_images(engine, predictors, loaded, as_files(images))
            result = tried.result
            return {"rows": sample_rows(result.comparison, result.samples), "left_out": list(tried.left_out)}

        @api_errors
        def correct(archive: str, image: str, label: str | None) -> tuple[str, Json]:
            with TemporaryDirectory() as folder:
                path, counts = _corrected_zip(archive, image, label or "", Path(folder))
                return copy_to_cache(corrected, str(path)), {"counts": counts}

        @api_errors
        def share(recipe: str) -> Json:
            loaded = atlas.Recipe.load(recipe)
            check_recipe(loaded, current.engine(), name=Path(recipe).name)
            link = share_query(shares.keep(loaded))
            return {"link": link, "days": LIMITS.share_days, "classes": list(loaded.classes)}

        expose(
            answer, [images, recipe, classes], rows, name="try", description=text.api.TRY_ENDPOINT, **DEVICE
        )
        expose(
            correct,
            [archive, image, label],
            [corrected, facts],
            name="correct",
            description=text.api.CORRECT_ENDPOINT,
            **UNPACK,
        )
        expose(share, [recipe], facts, name="share", description=text.api.SHARE_ENDPOINT, **DEVICE)


def _asked_rows(asked: asking.AskProgress) -> Json:
    """Answers by class names alone, in the rows that answers by a recipe have."""
    rows: list[dict[str, Any]] = [
        {
            "image": one.name,
            "truth": None,
            "zero_shot": {"label": one.ranking[0][0], "prob": one.ranking[0][1]},
            "adapted": None,
        }
        for one in asked.answers
    ]
    return {"rows": rows, "left_out": list(asked.left_out)}


def _corrected_zip(archive: str, image: str, label: str, folder: Path) -> tuple[Path, dict[str, int]]:
    """The zip with the image in its class's folder, and how many images each class has now."""
    source = folder / "source"
    source.mkdir()
    rows = unpack_classes(archive, source, min_classes=1)
    wanted = atlas.tidy_name(label)
    if not wanted:
        raise atlas.AtlasError(text.api.NO_LABEL)
    atlas.read_image(image, name=Path(image).name)  # what cannot be read is refused now, not when learning
    filled = add_to_class(rows, [wanted], image, wanted)
    path = folder / "corrected.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for row in filled:
            for place, file in enumerate(row.paths):
                packed.write(file, f"{row.name}/{place:04d}-{Path(file).name}")
    return path, {row.name: len(row.paths) for row in filled}
