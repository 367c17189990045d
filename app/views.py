"""HTML of the page, from the Jinja2 templates beside it. Pure functions; they know nothing of Gradio.

    render_alert("class name 'x' stands twice.")     "<div class='at-alert …"

Autoescape is on: whatever comes from outside is text, and never becomes markup. Only drawings that are made
here or by the engine's views are marked as HTML (`_svg`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import atlas_engine as atlas
from app import text
from app.examples import AskExample, FewShotExample, ForgetExample, UnlabelledExample
from app.handlers.ask import AskProgress, ImageAnswer
from app.handlers.few_shot import ZERO_SHOT, RunProgress, SavedResult, count_right
from app.handlers.forget import ForgetResult, SideComparison
from app.handlers.home import HomeExample
from app.handlers.inside import RecipeContents, TaskVectorFacts
from app.handlers.live import LiveAnswer
from app.handlers.models import ModelFacts
from app.handlers.settings import UnlabelledSettings
from app.handlers.uploads import LabelledImage
from app.limits import LIMITS
from atlas_engine.views.comparison import changes, confusion_grid
from atlas_engine.views.heatmap import PHONE, Grid, as_text, heat_map

EMPTY = ""

DESK_WIDTH = 800  # pixels: the column that a map stands in
CONFUSION_WIDTH, NARROW_CONFUSION_WIDTH = 560, 370  # pixels
NARROW_CLASSES = 5  # at most: their two maps fit beside each other
RANKED = 3  # classes listed on each side of a comparison
UNCHANGED_SHOWN = 12  # images in sight, at least; more are closed where their answer is as before
TASK_VECTORS_LISTED = 10
HEAD_ALONE = "text-probe"  # as the engine calls it
MIXED_UP_SHOWN = 3  # pairs of classes
FAINT = 0.2  # of the largest effect: what is below is closed at first
LOSS_WIDTH, LOSS_HEIGHT, LOSS_EDGE = 260, 64, 4  # pixels
CURVE_WIDTH, CURVE_HEIGHT, CURVE_EDGE = 320, 120, 8  # pixels


def _file_address(path: str) -> str:
    """Where the page finds a file of the server; relative, so that it works behind a proxy's prefix."""
    return f"gradio_api/file={quote(path)}"


_templates = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals["text"] = text
_templates.filters |= {
    "capitalized": text.page.capitalized,
    "css_percent": "{:.1%}".format,
    "file_address": _file_address,
    "percent": text.page.percent,
    "whole_percent": "{:.0%}".format,
}


def _render(template: str, macro: str, *values: object) -> str:
    """What a macro of a template makes of these values."""
    return str(getattr(_templates.get_template(f"{template}.html").module, macro)(*values)).strip()


def _svg(drawing: str) -> Markup:
    """A drawing whose words are escaped already."""
    return Markup(drawing)


# ---- around the tabs


def render_header() -> str:
    """The title and the one sentence under it."""
    return _render("page", "header")


def render_footnote() -> str:
    """What happens to a visitor's images."""
    return _render("page", "footnote")


def render_banner(reason: str) -> str:
    """Why another model than the chosen one is answering."""
    return _render("page", "banner", reason)


def render_home(story: HomeExample) -> str:
    """The worked example as a strip: an image, before and after, and one task vector switched off."""
    about = text.task_vectors.DATASETS.get(story.borrowed_from, story.borrowed_from)
    return _render("home", "strip", story, about)


def render_count(images: int) -> str:
    """How many images a class has."""
    return _render("page", "count", images)


def render_alert(message: str) -> str:
    """One sentence that needs the visitor's attention."""
    return _render("page", "alert", message)


def render_notice(message: str) -> str:
    """One sentence that is good to know, at the same place; nothing where there is none."""
    return _render("page", "notice", message) if message else EMPTY


def render_left_queue() -> str:
    """That the visitor gave up waiting."""
    return _render("page", "left_queue")


def render_left_out(sentences: Sequence[str]) -> str:
    """Which images were left out, and why; nothing when there are none."""
    return _render("page", "left_out", sentences) if sentences else EMPTY


def render_note(words: str) -> str:
    """A sentence in small letters."""
    return _render("parts", "note", words)


def render_heading(words: str) -> str:
    """A heading of ours."""
    return _render("parts", "heading", words)


def render_lead(title: str, words: str, *, level: int = 2) -> str:
    """A heading with a sentence below it."""
    return _render("parts", "lead", title, words, level)


# ---- the camera


def render_recorder(zone: str, place: int) -> str:
    """The camera of a class, whose images go to the drop zone `zone`."""
    return _render("camera", "recorder", zone, text.camera.record_label(place))


def render_live(zone: str) -> str:
    """The camera whose frames are answered live; those that are kept go to the drop zone `zone`."""
    return _render("camera", "live", zone)


def render_live_answer(answer: LiveAnswer, number: int) -> str:
    """What the camera's frame of that number shows."""
    sides = [
        (name, ranking)
        for name, ranking in ((text.result.BEFORE, answer.before), (text.result.NOW, answer.now))
        if ranking
    ]
    return _render("camera", "answer", number, sides, answer.note)


# ---- examples


@dataclass(frozen=True)
class _Button:
    title: str
    label: str  # what a screen reader says
    thumbnails: Sequence[str]


def render_ask_examples(examples: Iterable[AskExample]) -> str:
    """A button for each example, with its images; `data-example` holds its place."""
    buttons = [
        _Button(one.title, text.ask.example_label(one.title, one.classes), one.paths) for one in examples
    ]
    return _render("parts", "example_row", text.ask.EXAMPLES_HEADING, buttons)


def render_few_shot_examples(examples: Iterable[FewShotExample]) -> str:
    """The same for classes to learn."""
    buttons = [
        _Button(one.title, text.teach.example_label(one.title, one.request.classes), one.thumbnails)
        for one in examples
    ]
    return _render("parts", "example_row", text.teach.EXAMPLES_HEADING, buttons)


def render_unlabelled_examples(examples: Iterable[UnlabelledExample]) -> str:
    """The same for images without labels."""
    buttons = [
        _Button(one.title, text.unlabelled.example_label(one.title, one.classes), one.thumbnails)
        for one in examples
    ]
    return _render("parts", "example_row", text.unlabelled.EXAMPLES_HEADING, buttons)


def render_forget_example(example: ForgetExample) -> str:
    """The same for classes to forget."""
    button = _Button(text.forget.EXAMPLE_TITLE, text.forget.EXAMPLE_LABEL, example.thumbnails)
    return _render("parts", "example_row", text.forget.EXAMPLES_HEADING, [button])


# ---- answers


def render_answers(progress: AskProgress) -> str:
    """A card for each answered image; nothing while there is none."""
    return _render("ask", "answers", progress.answers, LIMITS.top_classes) if progress.answers else EMPTY


def render_status(line: str) -> str:
    """A line that a screen reader says aloud when it changes."""
    return _render("ask", "status", line)


# ---- a run and its verdict


def render_progress(progress: RunProgress) -> str:
    """What the run is doing, how long it will take, its loss so far and what is known of its accuracy."""
    doing = text.result.phase(progress.phase, progress.index, progress.of)
    time_left = "" if progress.seconds_left is None else text.result.time_left(progress.seconds_left)
    share = progress.index / progress.of if progress.phase == "read" else progress.share
    return _render(
        "run", "progress", doing, time_left, share, _counts_so_far(progress), _loss_curve(progress.losses)
    )


def _counts_so_far(progress: RunProgress) -> str:
    """How many images were right before, and are with what was learned by now; '' where nothing is known."""
    counts = {one.method: count_right(progress.estimates, one.method) for one in progress.estimates}
    before = counts.pop(ZERO_SHOT, None)
    if before is None:
        return ""
    learned = max((count[0] for count in counts.values() if count), default=None)
    return text.result.counts_so_far(before[0], learned, before[1])


def render_waiting(words: str) -> str:
    """What stands in place of a verdict while there is none."""
    return _render("run", "waiting", words)


def render_verdict(result: SavedResult, *, remark: str = "") -> str:
    """How many were right before and are now, large; why, and in the details what the numbers rest on."""
    counts, sentence = _verdict_counts(result), _verdict_sentence(result)
    headline = counts or (text.result.NOT_HELPED if result.kept_base else sentence)
    notes = _verdict_notes(remark, stopped=result.stopped)
    return _render(
        "run",
        "verdict",
        headline,
        {True: "helped", False: "same", None: "open"}[result.helped],
        notes,
        _reasons(result) if counts else [sentence] if headline != sentence else [],
        _mixed_up(result),
        _Details(
            sentence if counts else "",
            bool(result.helped) and _intervals_overlap(result),
            result.estimates,
            result.recipe.method,
            _loss_curve(result.losses),
            text.result.took(result.seconds),
        ),
    )


@dataclass(frozen=True)
class _Details:
    """What a verdict rests on, for experts."""

    sentence: str
    doubt: bool
    estimates: Sequence[atlas.Estimate]
    kept: str
    curve: Markup
    took: str


def _verdict_counts(result: SavedResult) -> str:
    """Before and now in numbers of images; '' where nothing could be counted."""
    before = result.right_of(ZERO_SHOT)
    if before is None or result.method_was_asked_for:
        return ""
    if not result.kept_base:
        after = result.right_of(result.recipe.method)
        return text.result.counts(before[0], after[0], after[1]) if after else ""
    learned = [result.right_of(one.method) for one in result.estimates if one.method != ZERO_SHOT]
    best = max((one for one in learned if one), default=None)
    return text.result.counts_not_kept(before[0], best[0], best[1]) if best else ""


def _reasons(result: SavedResult) -> list[str]:
    """What the counts mean, in plain words."""
    if result.shown_anyway:
        return [text.result.SHOWN_ANYWAY]
    before = result.right_of(ZERO_SHOT)
    outcome = {True: text.result.HELPED, False: text.result.NOT_HELPED, None: text.result.UNCLEAR}
    all_right = before is not None and before[0] == before[1] and result.kept_base
    why = [text.result.ALL_RIGHT] if all_right else []
    return [outcome[result.helped], *why, *result.advice, text.result.COUNTED]


def _mixed_up(result: SavedResult) -> list[str]:
    """The pairs of classes that are taken for each other among the images to try, the most frequent first."""
    if result.comparison is None:
        return []
    answers = zip(result.labels, result.comparison.adapted.labels, strict=True)
    wrong = Counter((label, answer) for label, answer in answers if label is not None and label != answer)
    totals = Counter(result.labels)
    return [
        text.result.mixed_up(str(label), answer, count, totals[label])
        for (label, answer), count in wrong.most_common(MIXED_UP_SHOWN)
    ]


def _verdict_sentence(result: SavedResult) -> str:
    """The engine's sentence, or the page's own for a method that it has another name for."""
    settings = result.settings
    if settings is None or not result.method_was_asked_for:
        return result.sentence
    unlabelled = isinstance(settings, UnlabelledSettings)
    words = text.unlabelled.asked_for if unlabelled else text.result.asked_for
    return words(settings.method_name)


def _verdict_notes(remark: str, *, stopped: bool) -> list[str]:
    return [words for words in (remark, text.result.STOPPED_NOTE if stopped else "") if words]


def _intervals_overlap(result: SavedResult) -> bool:
    """Whether the intervals of zero-shot and of the method that was kept have a part in common."""
    by_method = {one.method: one for one in result.estimates}
    before, after = by_method.get(ZERO_SHOT), by_method.get(result.recipe.method)
    return before is not None and after is not None and after.low <= before.high


def _loss_curve(losses: Sequence[float]) -> Markup:
    """The loss over the steps as a small SVG, with its first and last number; nothing before the second."""
    if len(losses) < 2:
        return Markup()
    low, high = min(0.0, *losses), max(*losses, 1e-6)
    room = LOSS_HEIGHT - 2 * LOSS_EDGE
    points = " ".join(
        f"{LOSS_WIDTH * place / (len(losses) - 1):.1f},{LOSS_EDGE + room * (high - loss) / (high - low):.1f}"
        for place, loss in enumerate(losses)
    )
    label = escape(text.result.loss_change(losses[0], losses[-1]))
    return _svg(
        f"<figure class='at-loss'><svg viewBox='0 0 {LOSS_WIDTH} {LOSS_HEIGHT}' role='img' "
        f"aria-label='{label}' preserveAspectRatio='none'><polyline points='{points}'/></svg>"
        f"<figcaption>{label}</figcaption></figure>"
    )


# ---- two models side by side


@dataclass(frozen=True)
class _Pair:
    """An image with the rankings of both sides, and what changed between them."""

    sample: LabelledImage
    change: str  # fixed, broken, changed or same
    sides: tuple[tuple[str, Sequence[tuple[str, float]]], ...]  # the name of each, and its ranking
    fresh: bool = False  # just dropped
    rejected: bool = False  # it looks like none of the classes


def render_comparison(result: SavedResult, *, first: Sequence[str] = ()) -> str:
    """The result's samples before and now, how many changed, and which classes are taken for which.

    The images whose paths are in `first` come first. Where the model as it was has been kept, there is only
    one side, and it is not called by what was learned.
    """
    if result.comparison is None:
        return render_note(text.result.NO_SAMPLES)
    notes = [text.result.PREVIEW_NOTE] if result.unfinished else []
    if result.kept_base:
        rankings = result.comparison.zero_shot.top(LIMITS.top_classes)
        order = _fresh_first(result.samples, first)
        answers = [
            ImageAnswer(result.samples[i].path, result.samples[i].image.name, tuple(rankings[i]))
            for i in order
        ]
        labels, classes = [result.labels[i] for i in order], result.recipe.classes
        notes = [text.result.SAME_NOTE]
        pairs = _render("ask", "cards", answers, LIMITS.top_classes, labels, classes, first)
    else:
        notes += _summaries(result.comparison, result.labels)
        pairs = render_pairs(
            result.comparison,
            result.samples,
            names=(text.result.BEFORE, text.result.NOW),
            first=first,
            correctable=not result.unfinished,
        )
    confusion = _confusion_maps(result) if any(result.labels) else ()
    return _render("compare", "comparison", notes, Markup(pairs), confusion)


def render_pairs(
    comparison: atlas.Comparison,
    samples: Sequence[LabelledImage],
    *,
    names: tuple[str, str],
    top: int = RANKED,
    first: Sequence[str] = (),
    correctable: bool = False,
) -> str:
    """A card per image with both rankings, under these two names.

    The images in `first` come first, then those that have another answer: fixed, broken, changed; then the
    rest. Where they are `correctable`, each offers its classes to choose the right one from.
    """
    changed = {one.index: one.what for one in changes(comparison, [sample.label for sample in samples])}
    order = _fresh_first(samples, first, changed)
    fresh = order[: sum(sample.path in first for sample in samples)]
    before, after = comparison.zero_shot.top(top), comparison.adapted.top(top)
    pairs = [
        _Pair(
            samples[i],
            changed.get(i, "same"),
            ((names[0], before[i]), (names[1], after[i])),
            i in fresh,
            comparison.adapted.rejected is not None and comparison.adapted.rejected[i],
        )
        for i in order
    ]
    shown = max(len({*fresh, *changed}), UNCHANGED_SHOWN)
    classes = comparison.adapted.classes if correctable else ()
    return _render("compare", "pairs", pairs[:shown], pairs[shown:], classes)


def _fresh_first(
    samples: Sequence[LabelledImage], first: Sequence[str], changed: Iterable[int] = ()
) -> list[int]:
    """The samples' places: first those whose paths are in `first`, the last of them first; then `changed`."""
    fresh = [index for index, sample in enumerate(samples) if sample.path in first]
    return list(dict.fromkeys([*reversed(fresh), *changed, *range(len(samples))]))


def _summaries(comparison: atlas.Comparison, labels: Sequence[str | None]) -> list[str]:
    known = sum(label is not None for label in labels)
    fixed, broken = len(comparison.fixed(labels)), len(comparison.broken(labels))
    changed = text.result.changed_summary(len(comparison.changed), len(comparison), fixed, broken, known)
    if not known:
        return [changed]
    before, after = (
        sum(answer == label for answer, label in zip(side.labels, labels, strict=True) if label is not None)
        for side in (comparison.zero_shot, comparison.adapted)
    )
    return [changed, text.result.accuracy_summary(before, after, known)]


# ---- maps


@dataclass(frozen=True)
class _Figure:
    """A map as SVG for a desk and for a phone, and its numbers as text."""

    desk: Markup
    phone: Markup
    numbers: str

    @classmethod
    def of(cls, grid: Grid, *, width: int = DESK_WIDTH) -> _Figure:
        return cls(_svg(heat_map(grid, width=width)), _svg(heat_map(grid, width=PHONE)), as_text(grid))


def render_map(grid: Grid) -> str:
    """The map drawn for a desk and for a phone, and the same numbers as a table."""
    return _render("inside", "figure", _Figure.of(grid))


def _confusion_maps(result: SavedResult) -> list[_Figure]:
    """Which classes are taken for which, by both sides in the same colours; by one where both agree."""
    comparison = result.comparison
    assert comparison is not None
    sides = {text.result.BEFORE: comparison.zero_shot, text.result.NOW: comparison.adapted}
    if result.kept_base:
        sides = {text.result.BEFORE: comparison.zero_shot}
    grids = [
        replace(confusion_grid(result.labels, side), title=text.result.confusion_title(name))
        for name, side in sides.items()
    ]
    reach = max(grid.reach for grid in grids)
    narrow = len(comparison.adapted.classes) <= NARROW_CLASSES
    width = NARROW_CONFUSION_WIDTH if narrow else CONFUSION_WIDTH
    return [_Figure.of(replace(grid, limit=reach), width=width) for grid in grids]


# ---- inside a recipe


def render_effects(contents: RecipeContents, result: SavedResult | None) -> str:
    """The task vectors ranked by what they do to the answers; the faint ones are closed at first."""
    if result is None or not contents.moves:
        return EMPTY
    if not contents.images:
        return render_note(text.inside.NO_EFFECTS)
    moving = [facts for facts in contents.task_vectors if facts.share > 0]
    least = FAINT * moving[0].effect
    clear = [facts for facts in moving if facts.effect >= least][:TASK_VECTORS_LISTED]
    head, both = result.right_of(HEAD_ALONE), result.right_of(result.recipe.method)
    gain = text.inside.gain_of_vectors(head[0], both[0], both[1]) if head and both else ""
    return _render("inside", "effects", clear, moving[len(clear) :], contents.images, gain)


def render_task_vectors(facts: Sequence[TaskVectorFacts]) -> str:
    """The task vectors that move the model most: how much, and what they were trained on."""
    return _render("inside", "task_vectors", facts[:TASK_VECTORS_LISTED])


def render_bank(facts: Sequence[TaskVectorFacts], similarities: Grid) -> str:
    """Every task vector with what it was trained on, and the map of how alike they are."""
    return _render("inside", "bank", facts, _Figure.of(similarities))


# ---- to take away


def render_code(title: str, lines: str) -> str:
    """Lines to copy."""
    return _render("takeaway", "code", title, lines)


def render_shared(query: str) -> str:
    """The link that opens the classifier."""
    return _render("takeaway", "shared", query)


def render_link(query: str) -> str:
    """The link that carries the settings."""
    return _render("takeaway", "link", query)


# ---- forgetting


def render_forget_verdict(result: ForgetResult, *, remark: str = "") -> str:
    """The honest sentence, large."""
    images = len(result.target) + len(result.control)
    return _render(
        "forget",
        "verdict",
        result.sentence,
        "helped" if result.helped else "same",
        _verdict_notes(remark, stopped=result.stopped),
        text.forget.took(result.seconds, images),
    )


def render_forget_numbers(result: ForgetResult, strength: float) -> str:
    """Both accuracies at a strength, the curves they lie on, and all of them as a table."""
    now = result.at(strength)
    return _render("forget", "numbers", result.curve, now, _accuracy_curves(result.curve, now.scale))


def render_forget_images(target: SideComparison, control: SideComparison) -> str:
    """Some images of each side, as the model was and now."""
    names = (text.forget.AS_IT_WAS, text.forget.NOW)
    pairs = [
        Markup(render_pairs(side.comparison, side.images, names=names, top=2)) for side in (target, control)
    ]
    return _render("forget", "images", *pairs)


def _accuracy_curves(curve: Sequence[atlas.ForgettingPoint], strength: float) -> Markup:
    """Both accuracies over the strength, and a line at the present one."""

    def x(scale: float) -> float:
        return CURVE_EDGE + (CURVE_WIDTH - 2 * CURVE_EDGE) * scale

    def y(accuracy: float) -> float:
        return CURVE_EDGE + (CURVE_HEIGHT - 2 * CURVE_EDGE) * (1 - accuracy)

    def line(side: str, accuracies: Sequence[float]) -> str:
        points = " ".join(
            f"{x(point.scale):.1f},{y(accuracy):.1f}"
            for point, accuracy in zip(curve, accuracies, strict=True)
        )
        return f"<polyline class='at-{side}-side' points='{points}'/>"

    target, control = [point.target for point in curve], [point.control for point in curve]
    label = escape(text.forget.curves_label((target[0], target[-1]), (control[0], control[-1])))
    here, bottom = f"{x(strength):.1f}", CURVE_HEIGHT - CURVE_EDGE
    return _svg(
        f"<svg viewBox='0 0 {CURVE_WIDTH} {CURVE_HEIGHT}' role='img' aria-label='{label}'>"
        f"<line x1='{here}' x2='{here}' y1='{CURVE_EDGE}' y2='{bottom}'/>"
        f"{line('target', target)}{line('control', control)}</svg>"
    )


# ---- models


def render_model(facts: ModelFacts) -> str:
    """What there is to tell of the model that answers."""
    has_bank = len(facts.task_vectors) > 0
    values = (
        text.model.NAMES.get(facts.name, facts.name),
        text.model.weights(facts.millions),
        f"{facts.pixels} px",
        text.model.bank(len(facts.task_vectors), facts.storage) if has_bank else text.model.NO_BANK,
    )
    rows = list(zip(text.model.CARD_ROWS, values, strict=True))
    if facts.residency is not None:
        rows.append((text.model.RESIDENCY, _residency_words(facts.residency)))
    return _render("model", "card", rows)


def _residency_words(found: atlas.Residency) -> str:
    if found.memory_limit_nbytes is None:  # a resident bank
        return text.model.resident(found.on_device, found.device_nbytes)
    return text.model.residency(
        on_device=found.on_device,
        in_memory=found.in_memory,
        on_disk=found.on_disk,
        nbytes=found.memory_nbytes,
    )


def render_model_status(doing: str, share: float | None = None) -> str:
    """What is being done to have a model ready, and how far it is where that is known."""
    return _render("model", "status", doing, share)
