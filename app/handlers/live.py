"""Answer one small frame of a camera: quickly, outside of the device's lane, or not at all.

    lane = LiveLane()
    answer = lane.answer(engine, predictors, result, ("cat", "dog"), frame)

Whoever finds the lane full is told so at once: a frame that would be answered late is of no use to anybody.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import atlas_engine as atlas
from app import text
from app.handlers.ask import check_class_names
from app.handlers.few_shot import SavedResult
from app.handlers.trying import answered_by
from app.limits import LIMITS
from app.predictors import Predictors

__all__ = ["LiveAnswer", "LiveLane", "decode_frame"]

AT_ONCE = 2  # frames computed at the same time, of all visitors
WAIT_SECONDS = 0.3  # for room in the lane
RANKED = 3
HEADERS = ("data:image/jpeg;base64,", "data:image/png;base64,")

Ranking = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class LiveAnswer:
    """What a frame shows: before teaching and now, or by words alone; a note on it, or why there is none."""

    before: Ranking = ()
    now: Ranking = ()
    note: str = ""


class LiveLane:
    """Room for a few frames at a time."""

    def __init__(self, *, at_once: int = AT_ONCE, wait_seconds: float = WAIT_SECONDS) -> None:
        self._room = threading.BoundedSemaphore(at_once)
        self._wait_seconds = wait_seconds

    def answer(
        self,
        engine: atlas.Atlas,
        predictors: Predictors,
        result: SavedResult | None,
        names: Sequence[str],
        frame: str,
    ) -> LiveAnswer:
        """The answer by the result or under these names; a note where there is no room or nothing taught."""
        taught = answered_by(result, names)
        if taught is None and not names:
            return LiveAnswer(note=text.camera.NOTHING_TAUGHT)
        image = atlas.read_image(decode_frame(frame), name="camera.jpg")
        if not self._room.acquire(timeout=self._wait_seconds):
            return LiveAnswer(note=text.camera.BUSY)
        try:
            if taught is None:
                check_class_names(names)
                return LiveAnswer(before=_ranking(engine.predict([image], names)))
            comparison = predictors.compare(engine, taught.recipe, [image])
            if taught.kept_base:
                return LiveAnswer(before=_ranking(comparison.zero_shot))
            rejected = comparison.adapted.rejected is not None and comparison.adapted.rejected[0]
            note = text.trying.NONE_OF_THESE if rejected else ""
            return LiveAnswer(_ranking(comparison.zero_shot), _ranking(comparison.adapted), note)
        finally:
            self._room.release()


def decode_frame(frame: str) -> bytes:
    """The bytes of a `data:` address that a camera's frame comes in; an AtlasError where it is none."""
    header = next((one for one in HEADERS if frame.startswith(one)), None)
    if header is None or len(frame) > LIMITS.frame_bytes:
        raise atlas.AtlasError(text.camera.BAD_FRAME)
    try:
        return base64.b64decode(frame[len(header) :], validate=True)
    except binascii.Error:
        raise atlas.AtlasError(text.camera.BAD_FRAME) from None


def _ranking(predictions: atlas.Predictions) -> Ranking:
    return tuple((guess.label, guess.prob) for guess in predictions.top(RANKED)[0])
