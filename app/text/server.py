"""What the server says when it refuses: to visitors, to programs, and in its log."""

from __future__ import annotations

from app.limits import LIMITS

# ---- refusals at the edge

NOT_HERE = "There is nothing here. The page is at /, and the list of its endpoints at /gradio_api/info."
OTHER_HOST = (
    "This server does not answer under that host name. Use the address that it printed, or name the host in "
    "ATLAS_HOSTS when it is started."
)
OTHER_ORIGIN = (
    "This request comes from another web page. Open the page of this server itself, or name the other page's "
    "address in ATLAS_ORIGINS when the server is started."
)
NOT_MULTIPART = "Files are taken as multipart/form-data only. Send them as a form with the field `files`."
NOT_JSON = "The request is not the JSON that is expected here: an object within the limits of size and depth."
TOO_SLOW_BODY = "The request came too slowly and was given up. Please send it again."
TOO_MANY_REQUESTS = "These are more requests than one client may make. Wait a few seconds, then ask again."
TOO_MANY_CONNECTIONS = "The server has no connection left for now. Wait a few seconds, then try again."
DRAINING = "The server is about to stop and takes no new work. Please ask again in a minute."

# ---- files and their room

BAD_UPLOAD = "The files could not be read from the request. Please choose them again."
DISK_FULL = (
    "The server has no room for more files at the moment. Files are deleted after a while: try again later."
)


def visitor_full(megabytes: int) -> str:
    """The refusal of more files than one visitor may have."""
    return (
        f"You have sent {megabytes} MB within half an hour, which is as much as one visitor may. Wait a "
        "while, or run the app on your own machine."
    )


# ---- the queue

CLIENT_WAITS = (
    f"You have a run under way and {LIMITS.waiting_runs} that wait, which is as much as one visitor may. "
    "Stop one, or wait until one is done."
)
CLIENT_ASKS = "You have asked as many questions at once as one visitor may. Wait until some are answered."
QUEUE_FULL = "The queue is full. Wait a minute, then ask again."


def slow_reading(seconds: float) -> str:
    """The refusal of images that take too long to read."""
    return (
        f"Reading these pictures took longer than the {seconds:g} s that are allowed. Send fewer or smaller "
        "ones."
    )


# ---- models


def not_in_list(name: str, offered: list[str]) -> str:
    """The refusal of a model that a public host does not offer."""
    return f"'{name[:80]}' cannot be chosen on this host. It offers: {', '.join(offered)}."


def large_model(gigabytes: float, most: float) -> str:
    """The refusal of a model that is too large for visitors to have fetched."""
    return (
        f"This model and its checkpoints are {gigabytes:.1f} GB, but at most {most:g} GB are fetched for a "
        "visitor. Choose a smaller one, or run the app on your own machine."
    )


def no_room_for_model(gigabytes: float, what: str) -> str:
    """The refusal of a model that does not fit; `what` is `disk` or `memory`."""
    return (
        f"This model needs about {gigabytes:.1f} GB of {what}, and the server has less left. Choose a "
        "smaller one."
    )


# ---- health, in the terminal and at /readyz


def stopping(name: str) -> str:
    """The line printed when the server is asked to stop."""
    return f"{name}: no new work is taken, runs end with the best they have …"


STOPPED = "stopped; visitors' files are deleted"


def metrics_address(port: int) -> str:
    """The line printed where metrics are served."""
    return f"metrics are at http://127.0.0.1:{port}/metrics"


def not_ready(parts: dict[str, str]) -> str:
    """The line printed where the server starts without something that it needs."""
    return "not ready: " + "; ".join(f"{name}: {why}" for name, why in parts.items())
