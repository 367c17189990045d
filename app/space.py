"""The page on a Hugging Face Space: the file that `app_file` names. On ZeroGPU it computes on a borrowed GPU.

    python app/space.py                serve as a Space does; where there is no ZeroGPU, as `python -m app`

How ZeroGPU works: what is decorated with `spaces.GPU` runs in a process forked from this one, where the GPU
is real; arguments and results are pickled. So the model and its bank are opened twice before the page is
served: on the CPU, for all that this process does itself, and on the device, which takes the former's place
in the fork. Results are on the CPU already: they are recipes, tables and words. Of what Gradio tells about an
event, which does not survive pickling, only the plain part goes along.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent

if os.environ.get("SPACES_ZERO_GPU"):
    import spaces  # before anything that touches CUDA

if TYPE_CHECKING:
    import gradio as gr

    from app.engines import Engines

__all__ = ["gpu_seconds", "main", "through_gpu"]

START_SECONDS = 10.0  # moving the model and its bank to the device, and a first answer
PICTURE_SECONDS = 0.1
LEARNERS = (
    "adapt",
    "adapt_unlabelled",
    "forget_classes",
    "on_adapt",
    "on_forget",
)  # handlers that learn, up to the deadline of a run
FILE_SECONDS = 2.0

Handler = Callable[..., Any]


def main() -> int:
    """Serve the page; on ZeroGPU through its door."""
    from app.__main__ import main as serve

    return _serve_on_zero_gpu() if os.environ.get("SPACES_ZERO_GPU") else serve([])


def through_gpu(page: gr.Blocks, engines: Engines, on_device: object, *, gpu: Handler) -> list[str]:
    """Send every event of the device's lane through the decorator `gpu`; gives back their handlers' names."""
    from app.events import DEVICE

    sent = []
    for event in page.fns.values():
        if event.concurrency_id == DEVICE["concurrency_id"] and event.fn is not None:
            name = event.fn.__name__
            duration = functools.partial(gpu_seconds, name)
            event.fn = _plainly(gpu(_in_fork(event.fn, engines, on_device), duration=duration))
            sent.append(name)
    return sent


def gpu_seconds(handler: str, *values: object) -> int:
    """How long a call may keep the GPU: little, more for pictures, and a run's deadline for learning.

    >>> gpu_seconds("on_ask", [("a.jpg", None)] * 10, "otter, seal")
    11
    """
    from app.limits import LIMITS

    pictures = sum(len(value) for value in values if isinstance(value, list))
    learning = LIMITS.run_seconds if handler in LEARNERS else 0.0
    return math.ceil(START_SECONDS + learning + PICTURE_SECONDS * pictures)


def _plainly(handler: Handler) -> Handler:
    """The handler, given nothing that cannot be pickled."""

    if inspect.isgeneratorfunction(handler):

        @functools.wraps(handler)
        def stream(*values: object) -> Iterator[Any]:
            yield from handler(*map(_plain, values))

        return stream

    @functools.wraps(handler)
    def call(*values: object) -> Any:  # noqa: ANN401 - whatever the handler gives
        return handler(*map(_plain, values))

    return call


def _plain(value: object) -> object:
    """What an event was about, without the component; who asks, without their headers; all else as it is."""
    import gradio as gr

    if isinstance(value, gr.EventData):
        return SimpleNamespace(**(value._data or {}))
    if isinstance(value, gr.Request):
        return SimpleNamespace(session_hash=value.session_hash)
    return value


def _in_fork(handler: Handler, engines: Engines, on_device: Any) -> Handler:  # noqa: ANN401 - an engine
    """The handler as it runs in the fork, where the engine on the device answers."""

    if inspect.isgeneratorfunction(handler):

        @functools.wraps(handler)
        def stream(*values: object) -> Iterator[Any]:
            engines.first = on_device
            for value in handler(*values):
                yield value
                if _names_file(value):
                    time.sleep(FILE_SECONDS)  # nobody waits for us: the page needs a moment to copy the file

        return stream

    @functools.wraps(handler)
    def call(*values: object) -> Any:  # noqa: ANN401 - whatever the handler gives
        engines.first = on_device
        return handler(*values)

    return call


def _names_file(value: object) -> bool:
    if isinstance(value, dict):
        return _names_file(value.get("value"))
    if isinstance(value, (list, tuple)):
        return any(_names_file(one) for one in value)
    return isinstance(value, str) and len(value) < 1000 and value.startswith(os.sep) and Path(value).is_file()


def _serve_on_zero_gpu() -> int:
    from app import text
    from app.engines import Engines
    from app.model import open_engine
    from app.page import build, launch

    opened = open_engine(device="cpu")
    on_device = open_engine(opened.engine.backbone.name, device="cuda").engine
    if on_device.bank_path is not None:
        _ = on_device.bank  # read now, so that the fork finds it on the device
    engines = Engines(opened.engine, name=opened.name)
    page = build(opened, engines, fixed=True)
    through_gpu(page, engines, on_device, gpu=spaces.GPU)
    sys.stderr.write(f"{text.address(launch(page))}\n")
    page.block_thread()
    return 0


if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # it was this folder, whose modules are part of a package
    sys.exit(main())
