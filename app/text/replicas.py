"""What the replicas and their address say when they refuse, and what `atlas serve` prints."""

from __future__ import annotations

BUSY = "All replicas are busy and their queues are full. Wait a few seconds, then ask again."
LOST = "The replica that was at work has gone. Nothing was kept: please start again."
TOO_SLOW = "No replica has answered in time. Wait a minute, then ask again."
BAD_MESSAGE = "The message cannot be read. Send one as app.replicas.messages writes it, of this same version."
TOO_LARGE = "The message is too large. Send fewer or smaller images."
NO_TOKEN = "This address answers only those who send its token. Read the token file of whoever serves."
NOT_HERE = "There is nothing here. Post to /predict, /try or /adapt; recipes are at /results/ID."
NO_RESULT = "There is no result of that id. Results are kept for some days: send the recipe again."
BAD_ID = "A result's id has 64 hexadecimal digits."
BROKEN = "Something went wrong in a replica; its log says what. Please try again."
NO_TOKEN_MODE = "Ray was imported without its token. Call app.replicas.trust.use_token() first."
NO_RAY = 'atlas serve needs Ray, which is not installed. Install it: pip install "atlas-studio[ray]".'


def public_address(host: str) -> str:
    """The refusal to listen where the internet may ask."""
    return (
        f"'{host}' is no address of a private network, so nothing is served there. Use 127.0.0.1 or the "
        "private address of this machine; let visitors reach the page, never the replicas."
    )


def open_token(path: str) -> str:
    """The refusal of a token file that others can read."""
    return f"{path} can be read by other users of this machine. Make it yours alone: chmod 600 {path}"


def no_token_file(path: str) -> str:
    """The refusal to ask without a token."""
    return (
        f"There is no token at {path}. `atlas serve` makes it; copy it from the machine that serves, or name "
        "its file in RAY_AUTH_TOKEN_PATH."
    )


def nobody(address: str) -> str:
    """What a page says where no replicas answer."""
    return f"No replicas answer at {address}. Start them with `atlas serve`, or unset ATLAS_BACKEND."


def bad_backend(value: str) -> str:
    """The refusal of an ATLAS_BACKEND that is none."""
    return (
        f"ATLAS_BACKEND is '{value[:80]}', but must be 'ray' or 'ray://HOST:PORT', as `atlas serve` prints "
        "it."
    )


def other_model(here: str, there: str) -> str:
    """The refusal of replicas that hold another model or bank than the page."""
    return (
        f"The page has {here} open, but the replicas hold {there}. Start both with the same --model and "
        "--bank."
    )


def serving(address: str, replicas: int) -> str:
    """The line printed when the replicas are ready."""
    return f"{replicas} replica(s) each of predict, try and adapt answer at {address}"


STOPPING = "the replicas finish what they do, and stop …"
