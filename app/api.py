"""What programs call: `/predict`, `/adapt`, `/adapt_unlabelled`, `/compare`, `/stop`, `/forget`, `/inside`,
`/turn`, `/weights`, `/export`, `/bank`, `/models` and `/choose`. Their names, parameters and results are kept
stable.

Each is an event of a button that nobody sees, whose inputs are components: they check that a file is an
upload. `gr.api` would hand a function any path of the server that a program names, unless it carries
Gradio's own mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import text
from app.events import DEVICE, EXPORT, FETCH, api_errors, current_session, long_run
from app.handlers import ask as asking
from app.handlers import models as choosing
from app.handlers.few_shot import FewShotRequest, RunProgress, SavedResult, adapt_few_shot
from app.handlers.forget import ForgetRequest, ForgetResult, forget
from app.handlers.inside import (
    TaskVectorFacts,
    coefficient_map,
    compare_scaled,
    inspect_recipe,
    list_task_vectors,
    parse_strengths,
    similarity_map,
)
from app.handlers.settings import METHODS, OBJECTIVES, FewShotSettings, UnlabelledSettings, read_templates
from app.handlers.takeaway import export_recipe, load_recipe, save_recipe, save_weights
from app.handlers.unlabelled import UnlabelledRequest
from app.handlers.unlabelled import adapt_unlabelled as adapt_to_images
from app.handlers.uploads import LabelledImage, UploadedImage, unpack_classes
from app.mcp_tools import is_mcp, run_owner
from app.session import CurrentModel, Engines, Runs
from app.tabs.components import copy_to_cache
from atlas_engine.views.heatmap import Grid

__all__ = ["Files", "Json", "add_endpoints", "add_model_endpoints", "as_files", "expose", "sample_rows"]

Json = dict[str, Any]
Files = Sequence[str] | None


def add_endpoints(current: CurrentModel, runs: Runs) -> None:
    """Make the endpoints that compute, inside the current Blocks."""
    with gr.Row(visible=False):
        _add_predict(current)
        _add_adapt(current, runs)
        _add_forget(current, runs)
        _add_inside(current)


def add_model_endpoints(engines: Engines, runs: Runs) -> None:
    """`/models` and `/choose`, inside the current Blocks; a choice holds for the client that makes it."""

    def models() -> Json:
        return {"now": engines.name_of(current_session()), "offered": choosing.offered_models(engines)}

    @api_errors
    def choose_model(request: gr.Request, model: str) -> Json:
        session = str(request.session_hash)
        if is_mcp(request):
            raise atlas.AtlasError(text.api.SHARED_SESSION)
        with runs.begin(session) as stop_signal:
            *_, last = choosing.choose_model(engines, session, model, stop_signal=stop_signal)
        if last.stopped:
            raise atlas.AtlasError(text.model.STOPPED)
        facts = choosing.describe_model(engines.engine_of(session), engines.name_of(session))
        return choosing.as_json(facts)

    with gr.Row(visible=False):
        name = gr.Textbox(label=text.api.MODEL_NAME)
        facts, known = gr.JSON(label=text.api.MODEL), gr.JSON(label=text.api.MODEL)
        expose(models, [], known, name="models", description=text.api.MODELS_ENDPOINT, queue=False)
        expose(choose_model, [name], facts, name="choose", description=text.api.CHOOSE_ENDPOINT, **FETCH)


def expose(
    endpoint: Callable[..., Any],
    inputs: list[Any],
    outputs: Any,  # noqa: ANN401 - one component or several
    *,
    name: str,
    description: str,
    **lane: Any,  # noqa: ANN401 - as Gradio takes it
) -> None:
    """Make an endpoint of a function; each of its parameters has a description of its own (`text.api`).

    Gradio reads those from the docstring, which agents are shown.
    """
    about = text.api.PARAMETERS[name]
    lines = [description, "", *(["Args:"] if about else []), *(f"    {key}: {about[key]}" for key in about)]
    endpoint.__doc__ = "\n".join(lines)
    gr.Button().click(endpoint, inputs, outputs, api_name=name, api_description=description, **lane)


# ---- asking


def _add_predict(current: CurrentModel) -> None:
    @api_errors
    def predict(images: Files, classes: str | None) -> dict[str, object]:
        *_, last = asking.ask(current.engine(), list(images or []), classes or "")
        return asking.as_json(last)

    files = gr.File(label=text.api.IMAGES, file_count="multiple", type="filepath")
    names = gr.Textbox(label=text.api.CLASSES)
    rows = gr.JSON(label=text.api.ROWS)
    expose(predict, [files, names], rows, name="predict", description=text.api.PREDICT_ENDPOINT, **DEVICE)


# ---- adapting


def _add_adapt(current: CurrentModel, runs: Runs) -> None:
    usual = FewShotSettings()
    archive = gr.File(label=text.api.ZIP, type="filepath")
    samples = gr.File(label=text.api.SAMPLES, file_count="multiple", type="filepath")
    method = gr.Dropdown(list(METHODS), value=usual.method, label=text.page.METHOD_LABEL)
    steps = gr.Number(usual.steps, precision=0, label=text.page.STEPS_LABEL)
    seed = gr.Number(usual.seed, precision=0, label=text.page.SEED_LABEL)
    lr = gr.Number(usual.lr, label=text.page.LR_LABEL)
    templates = gr.Textbox("", label=text.api.TEMPLATES)
    images = gr.File(label=text.api.UNLABELLED_IMAGES, file_count="multiple", type="filepath")
    classes = gr.Textbox(label=text.api.CLASSES)
    objective = gr.Dropdown(list(OBJECTIVES), value=OBJECTIVES[0], label=text.page.METHOD_LABEL)
    recipe = gr.File(label=text.api.RECIPE, type="filepath")
    result, made = gr.JSON(label=text.api.RESULT), gr.File(label=text.api.RECIPE)
    rows, stopped = gr.JSON(label=text.api.ROWS), gr.JSON(label=text.api.STOPPED)

    @long_run
    @api_errors
    def adapt(  # noqa: PLR0917 - an endpoint, which Gradio calls
        request: gr.Request,
        archive: str,
        samples: Files,
        method: str,
        steps: float,
        seed: float,
        lr: float | None,
        templates: str | None,
    ) -> Iterator[tuple[Json, str | None]]:
        engine = current.engine()
        rate, sentences = usual.lr if lr is None else float(lr), read_templates(templates)
        settings = FewShotSettings(method, int(steps), rate, int(seed), sentences)
        with TemporaryDirectory() as folder, runs.begin(run_owner(request)) as stop_signal:
            wanted = FewShotRequest(unpack_classes(archive, Path(folder)), as_files(samples))
            for progress in adapt_few_shot(engine, wanted, settings, stop_signal=stop_signal):
                yield _run_json(progress, made)

    @long_run
    @api_errors
    def adapt_unlabelled(  # noqa: PLR0917 - as above
        request: gr.Request,
        photos: Files,
        classes: str | None,
        objective: str,
        seed: float,
        templates: str | None,
    ) -> Iterator[tuple[Json, str | None]]:
        engine = current.engine()
        wanted = UnlabelledRequest(as_files(photos), asking.split_class_names(classes or ""))
        settings = UnlabelledSettings(objective, int(seed), read_templates(templates))
        with runs.begin(run_owner(request)) as stop_signal:
            for progress in adapt_to_images(engine, wanted, settings, stop_signal=stop_signal):
                yield _run_json(progress, made)

    def stop(request: gr.Request) -> dict[str, bool]:
        return {"stopped": runs.stop(run_owner(request))}

    @api_errors
    def compare(samples: Files, recipe: str) -> Json:
        loaded, left_out = load_recipe(current.engine(), recipe, as_files(samples))
        return {"rows": sample_rows(loaded.comparison, loaded.samples), "left_out": list(left_out)}

    expose(
        adapt,
        [archive, samples, method, steps, seed, lr, templates],
        [result, made],
        name="adapt",
        description=text.api.ADAPT_ENDPOINT,
        **DEVICE,
    )
    expose(
        adapt_unlabelled,
        [images, classes, objective, seed, templates],
        [result, made],
        name="adapt_unlabelled",
        description=text.api.ADAPT_UNLABELLED_ENDPOINT,
        **DEVICE,
    )
    expose(stop, [], stopped, name="stop", description=text.api.STOP_ENDPOINT, queue=False)
    expose(compare, [samples, recipe], rows, name="compare", description=text.api.COMPARE_ENDPOINT, **DEVICE)


def _run_json(progress: RunProgress, made: gr.File) -> tuple[Json, str | None]:
    """How far a run is and no file, or its result and the recipe's file."""
    if progress.result is None:
        return _progress_json(progress), None
    result = {**_result_json(progress.result), "left_out": list(progress.left_out)}
    return result, _cached_recipe(progress.result.recipe, made)


def _progress_json(progress: RunProgress) -> Json:
    return {"phase": progress.phase, "share": progress.share, "seconds_left": progress.seconds_left}


def _result_json(result: SavedResult) -> Json:
    return {
        "verdict": result.sentence,
        "helped": result.helped,
        "kept": result.recipe.method,
        "estimates": [
            {"method": e.method, "accuracy": e.accuracy, "low": e.low, "high": e.high, "images": e.images}
            for e in result.estimates
        ],
        "seconds": result.seconds,
        "stopped": result.stopped,
        "rows": sample_rows(result.comparison, result.samples),
    }


def sample_rows(comparison: atlas.Comparison | None, samples: Sequence[LabelledImage]) -> list[Json]:
    """A row per image: its name, its class where that is known, and both answers."""
    if comparison is None:
        return []
    before, after = comparison.zero_shot.top(1), comparison.adapted.top(1)
    return [
        {
            "image": sample.image.name,
            "truth": sample.label,
            "zero_shot": old[0]._asdict(),
            "adapted": new[0]._asdict(),
        }
        for sample, old, new in zip(samples, before, after, strict=True)
    ]


def _cached_recipe(recipe: atlas.Recipe, made: gr.File) -> str:
    """The recipe as a file that Gradio keeps for a while."""
    with TemporaryDirectory() as folder:
        return copy_to_cache(made, save_recipe(recipe, Path(folder)))


def as_files(paths: Files) -> tuple[UploadedImage, ...]:
    """A program's files as images without labels."""
    return tuple(UploadedImage(path) for path in paths or [])


# ---- forgetting


def _add_forget(current: CurrentModel, runs: Runs) -> None:
    target = gr.File(label=text.api.FORGET_TARGET, type="filepath")
    control = gr.File(label=text.api.FORGET_CONTROL, type="filepath")
    keep = gr.Number(atlas.NegateConfig().keep, label=text.api.FORGET_KEEP)
    seed = gr.Number(0, precision=0, label=text.page.SEED_LABEL)
    result, made = gr.JSON(label=text.api.RESULT), gr.File(label=text.api.RECIPE)

    @long_run
    @api_errors
    def forget_classes(
        request: gr.Request, target: str, control: str, keep: float, seed: float
    ) -> Iterator[tuple[Json, str | None]]:
        engine = current.engine()
        with TemporaryDirectory() as folder, runs.begin(run_owner(request)) as stop_signal:
            sides = []
            for name, archive in (("target", target), ("control", control)):
                (Path(folder) / name).mkdir()
                sides.append(unpack_classes(archive, Path(folder) / name))
            wanted = ForgetRequest.of(*sides, keep=float(keep), seed=int(seed))
            for progress in forget(engine, wanted, stop_signal=stop_signal):
                if progress.result is None:
                    yield _progress_json(progress.run), None
                else:
                    facts = {**_forget_json(progress.result), "left_out": list(progress.run.left_out)}
                    yield facts, _cached_recipe(progress.result.recipe, made)

    expose(
        forget_classes,
        [target, control, keep, seed],
        [result, made],
        name="forget",
        description=text.api.FORGET_ENDPOINT,
        **DEVICE,
    )


def _forget_json(result: ForgetResult) -> Json:
    return {
        "verdict": result.sentence,
        "helped": result.helped,
        "kept": result.recipe.method,
        "strengths": [
            {"strength": one.scale, "target": one.target, "control": one.control} for one in result.curve
        ],
        "seconds": result.seconds,
        "stopped": result.stopped,
    }


# ---- inside a recipe


def _add_inside(current: CurrentModel) -> None:
    given = gr.File(label=text.api.RECIPE, type="filepath")
    images = gr.File(label=text.api.SAMPLES, file_count="multiple", type="filepath")
    by_task, by_layer = gr.JSON(label=text.api.TASKS), gr.JSON(label=text.api.LAYERS)
    facts, rows = gr.JSON(label=text.api.RESULT), gr.JSON(label=text.api.ROWS)
    file = gr.File(label=text.api.WEIGHTS)
    export_format = gr.Textbox("onnx", label=text.api.EXPORT_FORMAT)
    in_int8 = gr.Checkbox(label=text.api.EXPORT_INT8)

    @api_errors
    def inside(recipe: str) -> Json:
        engine = current.engine()
        loaded, _ = load_recipe(engine, recipe, [])
        contents = inspect_recipe(engine, loaded.recipe)
        return {
            "task_vectors": [{**_task_vector_json(one), "share": one.share} for one in contents.task_vectors],
            "layers": list(contents.layers),
            "map": _map_json(coefficient_map(engine, loaded.recipe)),
        }

    @api_errors
    def turn(
        samples: Files,
        recipe: str,
        tasks: Mapping[str, float] | None,
        layers: Mapping[str, float] | None,
    ) -> Json:
        engine = current.engine()
        loaded, left_out = load_recipe(engine, recipe, as_files(samples))
        strengths = parse_strengths(inspect_recipe(engine, loaded.recipe), tasks=tasks, layers=layers)
        scaled = compare_scaled(engine, loaded, strengths)
        return {"rows": _scaled_rows(scaled), "left_out": list(left_out)}

    @api_errors
    def weights(recipe: str) -> str:
        engine = current.engine()
        loaded, _ = load_recipe(engine, recipe, [])
        with TemporaryDirectory() as folder:
            return copy_to_cache(file, save_weights(engine, loaded.recipe, Path(folder)))

    @api_errors
    def export(recipe: str, format: str, int8: bool) -> str:
        engine = current.engine()
        loaded, _ = load_recipe(engine, recipe, [])
        with TemporaryDirectory() as folder:
            path = export_recipe(engine, loaded.recipe, Path(folder), format=format, int8=int8)
            return copy_to_cache(file, path)

    @api_errors
    def bank() -> Json:
        engine = current.engine()
        return {
            "task_vectors": [_task_vector_json(one) for one in list_task_vectors(engine)],
            "similarities": _map_json(similarity_map(engine)),
        }

    expose(inside, [given], facts, name="inside", description=text.api.INSIDE_ENDPOINT, **DEVICE)
    expose(
        turn,
        [images, given, by_task, by_layer],
        rows,
        name="turn",
        description=text.api.TURN_ENDPOINT,
        **DEVICE,
    )
    expose(weights, [given], file, name="weights", description=text.api.WEIGHTS_ENDPOINT, **DEVICE)
    expose(
        export,
        [given, export_format, in_int8],
        file,
        name="export",
        description=text.api.EXPORT_ENDPOINT,
        **EXPORT,
    )
    expose(bank, [], facts, name="bank", description=text.api.BANK_ENDPOINT, **DEVICE)


def _task_vector_json(facts: TaskVectorFacts) -> Json:
    return {
        "name": facts.name,
        "trained_on": text.task_vectors.training_data(facts.dataset, facts.classes, facts.images),
        "before": facts.before,
        "after": facts.after,
    }


def _map_json(grid: Grid) -> Json:
    return {"rows": grid.rows, "columns": grid.columns, "values": grid.values}


def _scaled_rows(comparison: atlas.Comparison | None) -> list[Json]:
    if comparison is None:
        return []
    learned, now = comparison.zero_shot, comparison.adapted
    return [
        {"image": name, "as_learned": before[0]._asdict(), "now": after[0]._asdict()}
        for name, before, after in zip(learned.names, learned.top(1), now.top(1), strict=True)
    ]
