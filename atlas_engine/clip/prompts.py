"""Template sets: the sentences that a class name is put into. Knows nothing of models.

A class is embedded as the mean of its sentences' embeddings. Which set suits a model is measured, not
guessed; each model names its own default, and anyone can name another.
"""

from __future__ import annotations

from collections.abc import Sequence

from atlas_engine.config import MAX_CLASS_NAME
from atlas_engine.errors import ConfigError, SupportError, unknown_name
from atlas_engine.names import is_legible, tidy_name

__all__ = ["TEMPLATES", "check_classes", "sentences", "template_set"]


TEMPLATES: dict[str, tuple[str, ...]] = {
    "plain": ("{}",),
    "photo": ("a photo of a {}.",),
    "kinds": (
        "{}",
        "a photo of a {}.",
        "a picture showing {}.",
        "a close-up of {}.",
        "a drawing of a {}.",
        "{} seen from afar.",
    ),
    "textures": ("{}", "a {} texture.", "a surface that looks {}."),
    "satellite": ("{}", "a satellite image of {}.", "{} seen from above."),
}


def template_set(name: str) -> tuple[str, ...]:
    """The sentences of the set called `name`, each with one `{}`; or the sentence itself if it has one.

    >>> template_set("a blurry {}")
    ('a blurry {}',)
    """
    if "{}" in name:
        return (name,)
    if name not in TEMPLATES:
        raise ConfigError(unknown_name("template set", name, TEMPLATES))
    return TEMPLATES[name]


def sentences(class_name: str, templates: Sequence[str]) -> list[str]:
    """One sentence a template.

    >>> sentences("otter", ("{}", "a photo of a {}."))
    ['otter', 'a photo of a otter.']
    """
    return [template.replace("{}", class_name) for template in templates]


def check_classes(classes: Sequence[str], *, at_least: int = 1) -> tuple[str, ...]:
    """The class names, tidied; or a SupportError that names the one that cannot be used."""
    if isinstance(classes, str):
        raise SupportError(f"class names must be a list, but got the text {classes!r}. Pass [{classes!r}].")
    names = tuple(tidy_name(str(name)) for name in classes)
    if len(names) < at_least:
        raise SupportError(
            f"got {len(names)} class name{'' if len(names) == 1 else 's'}, but at least {at_least} are "
            f"needed. Add {at_least - len(names)} more."
        )
    seen: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if not name:
            raise SupportError(
                f"class name {position} of {len(names)} is empty. Give it a name or remove it."
            )
        if not is_legible(name):
            raise SupportError(
                f"class name {position} ({name[:30]!r}) has characters that cannot be shown. Type it anew."
            )
        if len(name) > MAX_CLASS_NAME:
            raise SupportError(
                f"class name {position} ('{name[:30]}…') has {len(name)} characters, but at most "
                f"{MAX_CLASS_NAME} are taken. Shorten it."
            )
        if name.casefold() in seen:
            raise SupportError(
                f"class name '{name}' stands twice, at {seen[name.casefold()]} and {position}. Remove one."
            )
        seen[name.casefold()] = position
    return names
