"""Every word that a visitor reads, except the sentences that come from the engine. Knows nothing else."""

from __future__ import annotations

from app.limits import LIMITS

TITLE = "aTLAS Studio"
LEAD = "Teach a vision model your own classes with a few pictures each, and see what it learned."

TAB_TEACH, TAB_ASK = "Teach it", "Ask"
ASK_LEAD = "Drop in pictures, type what they might show, and see which words fit. Nothing is learned here."

IMAGES_LABEL = f"Pictures (up to {LIMITS.images})"
CLASSES_LABEL = "What might they show?"
CLASSES_HELP = "Two or more words, separated by commas or new lines."
CLASSES_PLACEHOLDER = "otter, seal, walrus"
ASK = "Ask"
STOP = "Stop"
LEAVE = "Leave the queue"
STOPPED_EARLY = "Stopped before anything was learned. All that you gave is still here."
LEFT = "You left the queue. Nothing was run, and all that you gave is still here."

OF_GRADIO = {  # its own words for a drop zone, by its own keys
    "upload_text.drop_gallery": "Drop pictures",
    "upload_text.click_to_upload": "click to choose",
}

LESSONS_HEADING = "Worked examples"
EXAMPLES_HEADING = "Or try one of these"
ANSWERS_HEADING = "Answers"
OPENING = "An example. Your own pictures will show here."
ANSWERS_NOTE = (
    "The percentages share 100% among your words. The model always chooses, even when no word fits."
)
FOOTNOTE = (
    f"Pictures are used for your answer only, and deleted within {LIMITS.longest_stay_minutes} minutes after "
    f"you last used them."
)

BANNER_HEADING = "The model that ships with aTLAS is answering."
LEFT_OUT_HEADING = "Left out:"
STOPPED = "Stopped. The answers so far are kept."

NO_IMAGES = "There is no picture yet. Add at least one, then ask again."
BROKEN = (
    "Something went wrong on our side, and it is not your fault. Your input is still here: please ask again."
)
NO_ADDRESSES = "Pictures are not fetched from web addresses. Save the picture, then upload the file."
TOO_LARGE = "The request is too large. Upload pictures as files, and send fewer class names."
UPLOAD_TOO_LARGE = (
    f"These files have more than the {LIMITS.upload_megabytes} MB that are taken at once. Send fewer, or "
    f"save them smaller."
)

FILL_FROM_FOLDER, FILL_FROM_ZIP = "From a folder", "From a zip"
SIFTED = {  # of files that are not sent at all
    "no_picture": "{name}: is not a picture. Choose JPEG, PNG or WEBP files.",
    "other_ending": "{name}: cannot be taken here. Choose a file that ends in {ending}.",
    "too_large": "{name}: is larger than the {most} MB that are taken. Save it smaller.",
    "large_zip": (
        "{name}: is larger than the {most} MB that are taken. Unpack it and choose the folder instead: the "
        "page makes its pictures smaller on the way."
    ),
    "too_many": "{count} files were chosen, but at most {most} are taken here. Choose fewer.",
    "too_much": "These files have {sum} MB together, but at most {most} MB are taken at once. Choose fewer.",
    "packing": "Getting the folder {name} ready: {done} of {count} pictures …",
    "no_pictures": "{name}: is a folder without pictures. Choose one with JPEG, PNG or WEBP files.",
    "many_pictures": (
        "{name}: is a folder of {count} pictures, but at most {most} are taken here. Choose a smaller one."
    ),
    "large_folder": (
        "{name}: is a folder with more than {most} MB of pictures, even after making them smaller. Choose a "
        "smaller one."
    ),
    "no_zone": f"Files cannot be dropped here. Press {FILL_FROM_FOLDER} or {FILL_FROM_ZIP}.",
    "unread_folder": "{name}: is a folder that the browser could not read to the end. Choose it again.",
}

# ---- teach

CLASSES_HEADING = "1. Your classes"
CLASSES_LEAD = "Name each class and give it a few pictures: two or more each, and the page can check itself."
CLASS_PLACEHOLDERS = ("otter", "seal", "walrus")
ROW_PICTURES = "Pictures"
ADD_ROW = "Add a class"
ZIP_HELP = "A folder or a zip has one folder of pictures per class."
SAMPLES_HEADING = "2. Pictures to try it on"
SAMPLES_LABEL = f"Pictures to try (up to {LIMITS.samples})"
SAMPLES_ZIP_HELP = "With one folder per class the page also counts what is right."
ADAPT = "Adapt"
OWN = "Start with my own pictures"
SETTINGS = "Advanced settings"
METHOD_LABEL = "Method"
METHOD_HELP = "Automatic checks itself on pictures held out, and keeps zero-shot where nothing beats it."
METHOD_NAMES = {
    "auto": "Automatic",
    "atlas+text-probe": "Task vectors and a head",
    "atlas": "Task vectors alone",
    "text-probe": "A head alone",
}
STEPS_LABEL, LR_LABEL, SEED_LABEL = "Steps", "Learning rate", "Seed"
NO_LEARNING = "With a learning rate of 0 nothing is learned. Give a number above 0, as 0.05."
SEED_HELP = "The same seed gives the same answer."

RESULT_HEADING = "Result"
JUMP = "Jump to the result of the example"
TAB_COMPARE, TAB_INSIDE, TAB_TAKE = "Compare", "Look inside", "Take away"
WAITING = "Try an example, or give your own pictures and press Adapt: the result shows here."
STOPPED_NOTE = "Stopped before the end: this is the best so far."
BROUGHT = "This recipe was brought along: whether it helps was not measured here."
EXAMPLE_NOTE = "A worked example. Your own result will show here."
COMPARE_SOON = "Your pictures show here side by side as soon as there is a first guess."
PREVIEW_NOTE = "A first guess after one look. The model is still learning."
NO_SAMPLES = "Add pictures to try it on (step 2), and adapt again to see them side by side."
ZERO_SHOT, ADAPTED, NOW = "Zero-shot", "Adapted", "Now"
KEPT_MARK = "kept"
HELD_OUT_QUESTION = "What these numbers are"
HELD_OUT_NOTE = (
    "How many are named right, estimated on the pictures you taught it with, each answered by a model that "
    "did not see it; the band is the 95% interval. A head is a small classifier on top; task vectors change "
    "the model itself. Both together are kept unless the head alone is ahead by more than one picture, which "
    "may be chance, and zero-shot where it is ahead."
)
OVERLAP_NOTE = "The bands overlap, so part of the difference may be chance. More pictures would tell."
SIDES_NOTE = (
    "Zero-shot is the model as it was, told only your class names. Adapted is the model after it saw your "
    "pictures."
)
METHOD_SHORT = {
    "zero-shot": "Zero-shot",
    "text-probe": "A head alone",
    "atlas+text-probe": "Task vectors + head",
}
MAP_AS_TABLE = "The same numbers as a table"
LOSS_LABEL = "Loss, lower is better"
CHANGED_NOTES = {"fixed": "Fixed", "broken": "Broken", "changed": "Changed", "same": "Same"}
RIGHT, WRONG = "right", "wrong"

RECIPE_HEADING = "The recipe"
RECIPE_HELP = (
    "A small file that rebuilds the adapted model from the base model and its bank. No picture is in it."
)
RECIPE_DOWNLOAD = "Download the recipe"
RECIPE_UPLOAD = "Bring a recipe"
WEIGHTS_HEADING = "The weights"
WEIGHTS_HELP = (
    "The adapted image tower as a safetensors file, under open_clip's names. It is not all that was learned: "
    "the head, which gives the answers, is in the recipe, and the text tower stays as it was."
)
NO_BLOCK_MOVED = (
    "No block of the image tower moved, so its weights are those of the base model, and there is nothing to "
    "prepare. What was learned is a head, or nothing: take the recipe."
)
WEIGHTS_MAKE = "Prepare the weights"
WEIGHTS_DOWNLOAD = "Download the weights"
CODE_HEADING = "The same in Python"
SHELL_HEADING = "And from a terminal"
SHARE_HEADING = "Share the settings"
SHARE_HELP = "The link carries the class names and settings. Pictures stay with you."
SHARE_LINK = "Link to this page with these settings"
COPY, COPY_LINK, COPIED = "Copy", "Copy the link", "Copied"
AGAIN_COMMENT = "or learn it again, from a folder with one sub-folder of the same pictures per class"
STOPPED_COMMENT = "stopped early here: learned again it goes on to its end, and may answer otherwise"
PREPARE_COMMENT = "fetched, and its bank built, the first time"
BANK_COMMENT = "bank.safetensors is the bank that this page was started with"
NOTHING_TO_TAKE = "There is no result yet. Press Adapt first."
EXPIRED = (
    f"Your result has expired: results are kept for about {LIMITS.keep_seconds // 60} minutes. Press Adapt "
    "again, or bring its recipe if you downloaded it."
)


def few_classes(count: int) -> str:
    """The refusal of a question with fewer than two class names."""
    seen = "no class name" if count == 0 else "one class name"
    return f"There is {seen} yet, and a choice needs at least two. Type more, separated by commas."


def many_classes(count: int) -> str:
    """The refusal of a question with too many class names."""
    return f"There are {count} class names, but at most {LIMITS.classes} are taken at once. Remove some."


def many_recipe_classes(name: str, count: int) -> str:
    """The refusal of a recipe with too many classes."""
    return (
        f"{name}: has {count} classes, but this page takes recipes of at most {LIMITS.classes}. Use it with "
        f"the Python library, which takes more."
    )


def many_images(count: int) -> str:
    """The refusal of a question with too many pictures."""
    return f"There are {count} pictures, but at most {LIMITS.images} are taken at once. Remove some."


def few_rows(count: int) -> str:
    """The refusal of a lesson with fewer than two classes."""
    seen = "no class" if count == 0 else "one class"
    return f"There is {seen} yet, and telling apart needs at least two. Name two and give each some pictures."


def many_rows(count: int) -> str:
    """The refusal of a lesson with too many classes."""
    return (
        f"There are {count} classes, but this page takes at most {LIMITS.rows}. Remove some, or use the "
        f"Python library, which takes more."
    )


def nameless(place: int) -> str:
    """The refusal of pictures without a class name."""
    return f"Class {place} has pictures but no name. Type one, or remove the row."


def no_pictures(name: str) -> str:
    """The refusal of a class name without pictures."""
    return f"Class '{name[:60]}' has no pictures. Add two or more, or remove the row."


def many_lesson_images(count: int) -> str:
    """The refusal of a lesson with too many pictures."""
    most = LIMITS.lesson_images
    return f"There are {count} pictures to learn from, but at most {most} are taken. Remove some."


def many_samples(count: int) -> str:
    """The refusal of too many pictures to try it on."""
    return f"There are {count} pictures to try it on, but at most {LIMITS.samples} are taken. Remove some."


def class_label(place: int) -> str:
    """The label of a row's name."""
    return f"Class {place}"


def remove_label(place: int) -> str:
    """What a screen reader says for the button that removes a row."""
    return f"Remove class {place}"


def lesson_summary(rows: list[tuple[str, int]]) -> str:
    """What is there to learn from, names with how many pictures, and the one thing that would help most.

    >>> lesson_summary([("otter", 3), ("seal", 1)])
    '2 classes, 4 pictures. A second picture of seal would let the page check itself.'
    """
    classes = "1 class" if len(rows) == 1 else f"{len(rows)} classes"
    total = sum(count for _, count in rows)
    said = f"{classes}, {'1 picture' if total == 1 else f'{total} pictures'}."
    names = [name.casefold() for name, _ in rows]
    twice = [name for name, _ in rows if names.count(name.casefold()) > 1]
    if twice:
        return f"{said} The name {twice[-1][:60]} stands twice: change one."
    single = [name for name, count in rows if count == 1]
    if single:
        return f"{said} A second picture of {single[0][:60]} would let the page check itself."
    return said


def phase(name: str, index: int, of: int) -> str:
    """What a run is doing now."""
    return {
        "read": f"Reading the pictures: {index} of {of} …",
        "look": "Looking at the pictures …",
        "preview": "A first guess is ready. Learning starts …",
        "search": f"Trying strengths of one donor: {index + 1} of {of} …",
        "learn": f"Learning: step {index + 1} of {of}",
        "measure": f"Counting what is named right at each strength: {index + 1} of {of} …",
        "done": "Done.",
    }[name]


def time_left(seconds: float) -> str:
    """How long it will take, roughly.

    >>> time_left(3.2), time_left(75)
    ('about 4 s left', 'about 1 min 15 s left')
    """
    whole = max(1, int(seconds + 0.99))
    minutes, rest = divmod(whole, 60)
    return f"about {minutes} min {rest} s left" if minutes else f"about {rest} s left"


def took(seconds: float, pictures: int) -> str:
    """The line under a verdict."""
    told = "1 picture tried" if pictures == 1 else f"{pictures} pictures tried"
    return f"Learned in {seconds:.0f} s; {told}." if seconds >= 1 else f"{told[0].upper()}{told[1:]}."


def changed_summary(changed: int, total: int, fixed: int, broken: int, known: int) -> str:
    """How many of the samples have another answer now.

    >>> changed_summary(3, 8, 2, 1, 8)
    '3 of 8 pictures have another answer now: 2 fixed, 1 broken.'
    """
    said = f"{changed} of {total} pictures have another answer now"
    return f"{said}: {fixed} fixed, {broken} broken." if known else f"{said}."


def more_the_same(count: int) -> str:
    """What opens the pictures whose answer did not change, where there are many."""
    return f"{count} more with the same answer as before"


def accuracy_summary(before: int, after: int, known: int) -> str:
    """How many of the samples whose class is known are right, before and after."""
    return f"Right: {before} of {known} by zero-shot, {after} of {known} adapted."


def truth_caption(truth: str) -> str:
    """The class that the visitor gave for a picture."""
    return f"is: {truth}"


def loss_change(first: float, last: float) -> str:
    """What learning did to the loss, in as many digits as tell it.

    >>> loss_change(1, 0.5), loss_change(0.0123, 0.0004)
    ('Loss, lower is better: 1.00 → 0.50', 'Loss, lower is better: 0.012 → 0.0004')
    """
    digits = ".2f" if max(abs(first), abs(last)) >= 0.1 else ".2g"
    return f"{LOSS_LABEL}: {first:{digits}} → {last:{digits}}"


def confusion_title(side: str) -> str:
    """The heading of a map of which classes are taken for which."""
    return f"{side}: what is taken for what"


def interval(accuracy: float, low: float, high: float) -> str:
    """An estimate with its interval, in whole percents."""
    return f"{accuracy:.0%} ({low:.0%} to {high:.0%})"


def lesson_label(title: str, classes: tuple[str, ...]) -> str:
    """What a screen reader says for the button of a lesson that ships."""
    return f"Worked example: {title}. Classes: {', '.join(classes)}"


def progress(seen: int, total: int) -> str:
    """How far the question has come.

    >>> progress(0, 1), progress(8, 20)
    ('Looking at the picture …', 'Looking at the pictures: 8 of 20 done …')
    """
    if total == 1:
        return "Looking at the picture …"
    return f"Looking at the pictures: {seen} of {total} done …"


def finished(answered: int, classes: int) -> str:
    """The closing line of a question.

    >>> finished(1, 3)
    '1 picture, 3 words.'
    """
    pictures = "1 picture" if answered == 1 else f"{answered} pictures"
    return f"{pictures}, {classes} words."


def percent(prob: float) -> str:
    """A probability in whole percents, never rounded to a certainty.

    >>> percent(0.974), percent(0.0004), percent(0.9996)
    ('97%', '<1%', '>99%')
    """
    if 0 < prob < 0.005:
        return "<1%"
    if 0.995 <= prob < 1:
        return ">99%"
    return f"{prob:.0%}"


def picture_alt(name: str) -> str:
    """What a screen reader says in place of a picture."""
    return f"Your picture {name}"


def example_label(title: str, classes: tuple[str, ...]) -> str:
    """What a screen reader says for the button of an example."""
    return f"Example: {title}. Words: {', '.join(classes)}"


def no_port(port: int | None) -> str:
    """Why the page cannot be served."""
    which = "the port" if port is None else f"port {port}"
    return f"{which} is taken by another program. Give another one with --port."


def address(url: str) -> str:
    """The line printed when the page can be opened."""
    return f"aTLAS Studio is ready: open {url}"
