"""The one door for files: an upload has room or is refused, and leaves nothing behind unless it succeeds.

Gradio's own handler writes straight into its folder and leaves what it has begun after most errors, so that a
full disk stays full. Here each upload arrives in a folder of its own, which is deleted whatever happens; only
files that came complete are moved to where Gradio looks for them.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.route_utils import upload_fn
from gradio.routes import file_upload_statuses
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app import text
from app.clients import header_of
from app.edge import CLIENT, Message
from app.limits import LIMITS, Limits
from app.metrics import Metrics
from app.storage import NoRoomError, Storage, UploadSpace

__all__ = ["UPLOAD_PATH", "upload_route"]

UPLOAD_PATH = "/gradio_api/upload"
MAX_TRACKED = 500  # uploads whose progress Gradio remembers


def upload_route(page: gr.Blocks, storage: Storage, *, limits: Limits = LIMITS, metrics: Metrics) -> Route:
    """The route that takes files into `storage`, in place of Gradio's own."""

    async def upload(request: Request) -> Response:
        try:
            return JSONResponse(await _take(request, page, storage, limits))
        except _RefusedUploadError as refused:
            metrics.count_refusal("upload")
            return JSONResponse({"detail": str(refused)}, refused.status, headers={"connection": "close"})

    upload.takes_files = True  # type: ignore[attr-defined]  # for the table of routes
    return Route(UPLOAD_PATH, upload, methods=["POST"])


class _RefusedUploadError(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def _take(request: Request, page: gr.Blocks, storage: Storage, limits: Limits) -> list[str]:
    """The paths of the files of a form, or a refusal and no file."""
    most = limits.upload_megabytes << 20
    length = header_of(request.scope, "content-length")
    announced = int(length) if length.isdigit() else 0
    if announced > most:
        raise _RefusedUploadError(413, text.page.UPLOAD_TOO_LARGE)
    incoming = storage.incoming / secrets.token_hex(8)
    try:
        with storage.admit(str(request.scope[CLIENT]), announced) as space:
            counted = Request(request.scope, _count(request.receive, space, most=most))
            arrived = await _receive_files(counted, incoming, limits)
            paths = await asyncio.to_thread(_keep, arrived, incoming, storage.uploads)
    except NoRoomError as refused:
        raise _RefusedUploadError(507, str(refused)) from None
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise _RefusedUploadError(507 if full else 400, _sentence_for(error)) from None
    except MultiPartException as error:
        large = "maximum allowed size" in str(error.message)
        raise _RefusedUploadError(413 if large else 400, text.server.BAD_UPLOAD) from None
    except (HTTPException, TypeError, ValueError):
        raise _RefusedUploadError(400, text.server.BAD_UPLOAD) from None
    finally:
        await asyncio.to_thread(shutil.rmtree, incoming, ignore_errors=True)
        _forget_progress(request.query_params.get("upload_id"))
    page.upload_file_set.update(paths)
    return paths


async def _receive_files(request: Request, folder: Path, limits: Limits) -> list[str]:
    upload_id = request.query_params.get("upload_id")
    files, _, _ = await upload_fn(
        request,
        str(folder),
        limits.file_megabytes << 20,
        upload_id,
        force_move=True,
        upload_progress=file_upload_statuses if upload_id else None,
    )
    return [str(path) for path in files]


def _count(
    receive: Callable[[], Awaitable[Message]], space: UploadSpace, *, most: int
) -> Callable[[], Awaitable[Message]]:
    """A `receive` that counts the bytes of a body, and raises where they are too many."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        nbytes = len(message.get("body", b""))
        total += nbytes
        if total > most:
            raise _RefusedUploadError(413, text.page.UPLOAD_TOO_LARGE)
        space.arrive(nbytes)
        return message

    return counted


def _keep(paths: list[str], incoming: Path, uploads: Path) -> list[str]:
    """Move files from the folder they arrived in, `DIGEST/NAME`, to the same place among all uploads."""
    kept = []
    for path in paths:
        target = uploads / Path(path).relative_to(incoming)
        for attempt in (1, 2):  # a sweep may take the empty folder in between
            target.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                Path(path).replace(target)
                break
            except FileNotFoundError:
                if attempt == 2:
                    raise
        target.touch()  # its age counts from now
        kept.append(str(target))
    return kept


def _sentence_for(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return text.server.DISK_FULL
    return text.server.TOO_SLOW_BODY if isinstance(error, TimeoutError) else text.server.BAD_UPLOAD


def _forget_progress(upload_id: str | None) -> None:
    """Let Gradio's page read that an upload is done, and forget those that nobody asked about."""
    tracked: Any = file_upload_statuses
    if upload_id:
        tracked.set_done(upload_id)
    for known in (tracked._statuses, tracked._signals):
        while len(known) > MAX_TRACKED:
            known.pop(next(iter(known)))
