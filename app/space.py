"""The page on a Hugging Face Space: the file that `app_file` names. On ZeroGPU it computes on a borrowed GPU.

    python app/space.py                serve as a Space does; where there is no ZeroGPU, as `python -m app`

How ZeroGPU works: a function decorated with `spaces.GPU` runs in a process forked from this one, where the
GPU is real; arguments and results are pickled. So the model and its bank are opened twice before the page is
served: on the CPU, for all that this process does itself, and on the device, which takes the former's place
in the fork. Results are on the CPU already: they are recipes, tables and words. What cannot be pickled goes
as plain data: components as their numbers, and of a request or an event only what our handlers use.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent

if os.environ.get("SPACES_ZERO_GPU"):
    import spaces  # before anything that touches CUDA

if TYPE_CHECKING:
    import gradio as gr

    import atlas_engine as atlas
    from app.session import Engines

__all__ = ["gpu_seconds", "main", "run_on_gpu"]

START_SECONDS = 10.0  # moving the model and its bank to the device, and a first answer
IMAGE_SECONDS = 0.1

Handler = Callable[..., Any]


def main() -> int:
    """Serve the page; on ZeroGPU with its GPU."""
    from app.__main__ import main as serve

    return _serve_on_zero_gpu() if os.environ.get("SPACES_ZERO_GPU") else serve([])


def run_on_gpu(page: gr.Blocks, engines: Engines, on_device: atlas.Atlas, *, gpu: Handler) -> list[str]:
    """Send every event of the device's lane through the decorator `gpu`; returns their handlers' names."""
    from app.events import DEVICE, is_long_run

    names = []
    for event in page.fns.values():
        if event.concurrency_id == DEVICE["concurrency_id"] and event.fn is not None:
            duration = functools.partial(gpu_seconds, is_long_run(event.fn))
            in_fork = _in_fork(event.fn, page, engines, on_device)
            names.append(event.fn.__name__)
            event.fn = _in_server(gpu(in_fork, duration=duration), page)
    return names


def gpu_seconds(long_run: bool, *values: object) -> int:
    """How long a call may keep the GPU: little, more with many images, and a run's deadline for learning.

    >>> gpu_seconds(False, [("a.jpg", None)] * 10, "otter, seal")
    11
    """
    from app.limits import LIMITS

    images = 0
    for value in values:
        parts = value.by_number.values() if isinstance(value, _Numbered) else [value]
        images += sum(len(part) for part in parts if isinstance(part, list))
    learning = LIMITS.run_seconds if long_run else 0.0
    return math.ceil(START_SECONDS + learning + IMAGE_SECONDS * images)


# ---- on the way to the fork and back


@dataclass(frozen=True)
class _Numbered:
    """`{component: value}` as it is pickled: by the components' numbers."""

    by_number: dict[int, Any]


def _in_server(handler: Handler, page: gr.Blocks) -> Handler:
    """The handler as the server calls it: what goes to the fork and comes back is plain."""

    def call(values: tuple[object, ...]) -> Any:  # noqa: ANN401 - whatever the handler gives
        return handler(*map(_plain, values))

    return _wrapped(handler, call, functools.partial(_by_component, page))


def _in_fork(handler: Handler, page: gr.Blocks, engines: Engines, on_device: atlas.Atlas) -> Handler:
    """The handler as it runs in the fork, where the engine on the device answers."""

    def call(values: tuple[object, ...]) -> Any:  # noqa: ANN401 - whatever the handler gives
        engines.first = on_device
        return handler(*(_by_component(page, value) for value in values))

    return _wrapped(handler, call, _plain)


def _wrapped(
    handler: Handler, call: Callable[[tuple[object, ...]], Any], convert: Callable[[object], object]
) -> Handler:
    """A function or generator with the handler's signature; `convert` changes what it returns or yields."""
    if inspect.isgeneratorfunction(handler):

        @functools.wraps(handler)
        def stream(*values: object) -> Iterator[object]:
            for value in call(values):
                yield convert(value)

        return stream

    @functools.wraps(handler)
    def function(*values: object) -> object:
        return convert(call(values))

    return function


def _plain(value: object) -> object:
    """The value as it can be pickled.

    An event is what it was about, without the component; a request is the session, with the two headers
    that tell whose run it is; updates go by the components' numbers.
    """
    import gradio as gr

    from app.clients import MARK_HEADER
    from app.mcp_tools import USER_HEADER

    if isinstance(value, gr.EventData):
        return SimpleNamespace(**(value._data or {}))
    if isinstance(value, gr.Request):
        known = {name: value.headers.get(name) for name in (USER_HEADER, MARK_HEADER)}
        headers = {name: one for name, one in known.items() if one is not None}
        return SimpleNamespace(session_hash=value.session_hash, headers=headers)
    if isinstance(value, dict) and value and all(isinstance(key, gr.blocks.Block) for key in value):
        return _Numbered({component._id: one for component, one in value.items()})
    return value


def _by_component(page: gr.Blocks, value: object) -> object:
    """The value with components in place of their numbers."""
    if isinstance(value, _Numbered):
        return {page.blocks[number]: one for number, one in value.by_number.items()}
    return value


def _serve_on_zero_gpu() -> int:
    from app import text
    from app.page import build, launch
    from app.quiet_log import keep_log_quiet
    from app.serving import StopRequest
    from app.session import Engines, PageRuns, open_engine
    from app.storage import Storage

    stop_request, storage, runs = StopRequest().install(), Storage.open(), PageRuns()
    opened = open_engine(device="cpu")
    on_device = open_engine(opened.engine.backbone.name, device="cuda").engine
    if on_device.bank_path is not None:
        _ = on_device.bank  # read now, so that the fork finds it on the device
    engines = Engines(opened.engine, name=opened.name)
    page = build(opened, engines, runs=runs, fixed=True)
    run_on_gpu(page, engines, on_device, gpu=spaces.GPU)
    server = launch(page, opened, storage=storage, runs=runs, share_device=False)
    keep_log_quiet()
    sys.stderr.write(f"{text.page.address(server.address)}\n")
    server.wait(stop_request, log=lambda line: sys.stderr.write(f"{line}\n"))
    return 0


if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # it was this folder, whose modules are part of a package
    sys.exit(main())
