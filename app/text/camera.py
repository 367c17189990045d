"""The camera: recording images of a class, and live answers."""

from __future__ import annotations

from app.text.language import say

RECORD, HOLD = say("Record with the camera"), say("Hold to record")
LIVE, TAKE = say("Live camera"), say("Keep this image")
TURN, CLOSE = say("Other camera"), say("Close the camera")
PREVIEW = say("What the camera sees")
BUSY = say("Many are trying right now: the next image is answered as soon as there is room.")
BAD_FRAME = say("The camera's image could not be read. Close the camera and open it again.")
NOTHING_TAUGHT = say("Teach it first, or type words to choose from: then it answers what the camera sees.")

MESSAGES = {  # what the script says; it fills in the names
    "record": RECORD,
    "hold": HOLD,
    "ready": say("Hold the button, and turn the thing about: images that look alike are left out."),
    "recording": say("Recording: {count} images"),
    "recorded": say("{count} images recorded."),
    "alike": say("All looked alike, so none was added. Move the thing a little while you hold."),
    "none": say("There is no camera here, or it may not be used. Allow it in the browser, or choose files."),
}


def record_label(place: int) -> str:
    """What a screen reader says for the button that records a class, beginning with what is seen of it."""
    return f"{RECORD}: {say('Class {place}', place=place)}"
