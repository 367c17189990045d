"""Sharing a classifier by a link."""

from __future__ import annotations

from app.limits import LIMITS
from app.text.language import say

HEADING = say("Share the classifier")
HELP = say(
    "A link that opens it ready to try. Whoever has it sees the class names and can try it for {days} days; "
    "images are never in it.",
    days=LIMITS.share_days,
)
MAKE = say("Make a link")
LINK = say("Link to this classifier")
SHARED = say("Somebody shared this classifier with you. Drop an image, and see what it says.")
GONE = say(
    "This link leads nowhere: shared classifiers are kept for {days} days. Ask for a new one.",
    days=LIMITS.share_days,
)
FULL = say(
    "This server keeps as many shared classifiers as it has room for. Download the recipe and send that."
)
NOTHING = say("There is no result to share yet. Press Learn first.")
