"""The Ray Serve application: one door over HTTP, and behind it the deployments predict, try and adapt.

    use_token()                                      # before this module, and Ray with it, is imported
    with serving(Plan(replicas=2)) as address:       # a Ray of its own on this machine, or `cluster`
        ...

A request goes client → Serve's proxy → `Door` → a replica that is free. Each deployment has a bounded queue;
what finds it full is refused in words, with 503 and Retry-After. A question whose replica dies is asked again
of another; a lesson that has begun is lost, and says so. Messages are bytes all the way (`messages`): Ray
pickles no more than the call around them, between processes that hold its token.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

import atlas_engine as atlas
from app import text
from app.limits import LIMITS
from app.replicas.frames import Facts, frame, read_refusal, refusal
from app.replicas.results import NoResultError, Results, default_results
from app.replicas.trust import check_private, is_token, read_token, require_token_mode
from atlas_engine import cluster

__all__ = ["NAME", "Plan", "serving"]

NAME = "atlas"
RETRY_SECONDS = 3  # what a refusal for want of room asks a client to wait
ANSWER_SECONDS = 60.0  # for a question, waiting included
ATTEMPTS = 3  # for a question whose replica dies
MAX_NBYTES = 256 << 20  # of a request: 200 images at 448 pixels are 120 MB
WATCH_SECONDS = 0.25  # between two looks whether a lesson should end
STOP_SECONDS = 20.0  # for a replica to finish what it does when it is stopped

_log = logging.getLogger("ray.serve")

TIMEOUTS = (TimeoutError, asyncio.TimeoutError)  # one class from Python 3.11 on

Answer = tuple[int, bytes]  # the status of an HTTP answer, and a message or a sentence


@dataclass(frozen=True)
class Plan:
    """What is to be served, where, and by how many."""

    replicas: int = 1  # of each deployment
    counts: dict[str, int] = field(default_factory=dict)  # of some deployments, where they differ
    host: str = "127.0.0.1"
    port: int = 8000
    model: str = "bundled"
    bank: str | None = None
    device: str | None = None
    threads: int = 1  # of one replica
    gpus: float = 0.0  # of one replica: 0.25 puts four on one device
    queue: int = LIMITS.waiting  # requests that wait for one deployment
    results: str = field(default_factory=default_results)
    cluster: str | None = None  # the address of a Ray that runs already

    def count(self, deployment: str) -> int:
        """How many replicas a deployment has."""
        return self.counts.get(deployment, self.replicas)


# ---- the replicas


class ModelReplica:
    """What the three kinds of replicas have in common: a worker, opened when the replica starts."""

    def __init__(self, plan: Plan) -> None:
        from app.replicas.work import Worker  # with torch, which the door does without

        self.worker = Worker.open(plan.model, bank=plan.bank, device=plan.device, results=plan.results)
        self.plan = plan
        self.worker.facts()  # reads the weights and the bank, before the first visitor comes

    async def facts(self) -> Facts:
        """Which model and bank this replica holds, and its process."""
        return {**self.worker.facts(), "process": os.getpid(), "replicas": self.plan.count("adapt")}


class PredictReplica(ModelReplica):
    """Answers by class names."""

    async def answer(self, body: bytes) -> Answer:
        """Predictions for a message of images."""
        return await _answer(self.worker.predict, body)


class TryReplica(ModelReplica):
    """Answers by recipes, the composed ones of which it keeps."""

    async def answer(self, body: bytes) -> Answer:
        """A comparison for a message of images and a recipe's id."""
        return await _answer(self.worker.try_recipe, body)


class AdaptReplica(ModelReplica):
    """Learns, one lesson at a time."""

    async def learn(self, body: bytes) -> AsyncIterator[bytes]:
        """The messages of a lesson; whoever stops listening ends it."""
        loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1)  # one thread for all steps of a run
        lesson, watch = None, None
        try:
            lesson = await loop.run_in_executor(thread, self.worker.learn, body)
            watch = asyncio.create_task(_watch(lesson.stop_if_asked))
            steps = iter(lesson)
            while (message := await loop.run_in_executor(thread, _next, steps)) is not None:
                yield message
        except Exception as error:
            yield refusal(_sentence(error))
        finally:
            if lesson is not None and watch is not None:
                watch.cancel()
                lesson.end()  # the step under way is its last
            thread.shutdown(wait=False)


async def _answer(work: Callable[[bytes], bytes], body: bytes) -> Answer:
    try:
        return 200, await asyncio.to_thread(work, body)
    except NoResultError as error:
        return 404, str(error).encode()
    except atlas.AtlasError as error:
        return 422, str(error).encode()
    except Exception as error:
        return 500, _sentence(error).encode()


async def _watch(stop_if_asked: Callable[[], bool]) -> None:
    while not await asyncio.to_thread(stop_if_asked):
        await asyncio.sleep(WATCH_SECONDS)


def _next(steps: Iterator[bytes]) -> bytes | None:
    return next(steps, None)


def _sentence(error: Exception) -> str:
    """What a client reads of a failure; the log gets its kind and place, but no words of a visitor's."""
    if isinstance(error, atlas.AtlasError):
        return str(error)
    _log.error("a replica failed with %s", type(error).__name__)
    return text.replicas.BROKEN


# ---- the door


class Door:
    """The one address of all replicas: it looks at token, path and size, and hands messages on."""

    def __init__(self, results: str, *handles: Any) -> None:  # noqa: ANN401
        self._token, self._results = read_token(), Results(results)
        self._predict, self._try, adapt = handles
        self._adapt = adapt.options(stream=True)

    async def __call__(self, request: Request) -> Response:
        """The answer to a request, whatever is wrong with it."""
        if not is_token(request.headers.get("authorization", ""), self._token):
            return _refuse(401, text.replicas.NO_TOKEN)
        try:
            return await self._route(request)
        except (
            atlas.AtlasError,
            RayError,
            BackPressureError,
            DeploymentUnavailableError,
            *TIMEOUTS,
        ) as error:
            status, sentence = _refusal_of(error)
            return _refuse(status, sentence)

    async def _route(self, request: Request) -> Response:
        method, _, rest = request.url.path.removeprefix("/").partition("/")
        if request.method == "GET":
            if method == "facts":
                return JSONResponse(await self._predict.facts.remote())
            if method == "results":
                return _bytes(await asyncio.to_thread(self._results.get, rest))
            raise NoResultError(text.replicas.NOT_HERE)
        body = await _read_body(request)
        if method == "results":
            return JSONResponse({"id": await asyncio.to_thread(self._results.put, body)})
        if method == "stop":
            await asyncio.to_thread(self._results.stop, rest)
            return JSONResponse({"asked": True})
        if method == "adapt":
            return await self._learn(body)
        if method not in ("predict", "try"):
            raise NoResultError(text.replicas.NOT_HERE)
        status, answer = await self._ask(self._predict if method == "predict" else self._try, body)
        return _bytes(answer) if status == 200 else _refuse(status, answer.decode())

    async def _ask(self, replicas: Any, body: bytes) -> Answer:  # noqa: ANN401 - a handle
        """The answer of a replica; of another, where one dies over it."""

        async def ask() -> Answer:
            answer: Answer = await replicas.answer.remote(body)
            return answer

        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(RayError):
                return await asyncio.wait_for(ask(), ANSWER_SECONDS)
        return await asyncio.wait_for(ask(), ANSWER_SECONDS)

    async def _learn(self, body: bytes) -> Response:
        """A lesson as a stream, or why there is none."""
        lesson = self._adapt.learn.remote(body)
        try:
            first: bytes = await anext(aiter(lesson))
        except RayError:  # it had not begun: another replica can have it
            lesson = self._adapt.learn.remote(body)
            first = await anext(aiter(lesson))
        sentence = read_refusal(first)
        if sentence is not None:
            return _refuse(422, sentence)

        async def stream() -> AsyncIterator[bytes]:
            ended = False
            try:
                yield frame(first)
                async for message in lesson:
                    yield frame(message)
                ended = True
            except RayError:
                ended = True
                yield frame(refusal(text.replicas.LOST))
            finally:
                if not ended:  # whoever listened has gone
                    lesson.cancel()

        return StreamingResponse(stream(), media_type="application/octet-stream")


async def _read_body(request: Request) -> bytes:
    """The body; a TooLargeError where it is too large."""
    parts, nbytes = [], 0
    async for part in request.stream():
        nbytes += len(part)
        if nbytes > MAX_NBYTES:
            raise TooLargeError(text.replicas.TOO_LARGE)
        parts.append(part)
    return b"".join(parts)


class TooLargeError(atlas.AtlasError):
    """A request has more bytes than the door takes."""


def _refusal_of(error: Exception) -> tuple[int, str]:
    """The status and the sentence for what went wrong."""
    if isinstance(error, atlas.AtlasError):
        kinds = {NoResultError: 404, TooLargeError: 413}
        return kinds.get(type(error), 422), str(error)
    if isinstance(error, BackPressureError):
        return 503, text.replicas.BUSY
    if isinstance(error, TIMEOUTS):
        return 504, text.replicas.TOO_SLOW
    return 503, text.replicas.LOST


def _refuse(status: int, sentence: str) -> Response:
    later = {"Retry-After": str(RETRY_SECONDS)} if status in (503, 504) else {}
    return JSONResponse({"error": sentence}, status, headers=later)


def _bytes(body: bytes) -> Response:
    return Response(body, media_type="application/octet-stream")


# ---- the application


@contextlib.contextmanager
def serving(plan: Plan) -> Iterator[str]:
    """Serve while the block lasts; gives the address once every replica is ready."""
    check_private(plan.host)
    require_token_mode()
    _start_ray(plan)
    try:
        serve.start(http_options={"host": plan.host, "port": plan.port}, proxy_location="HeadOnly")
        serve.run(_application(plan), name=NAME, route_prefix="/")
        yield f"http://{plan.host}:{plan.port}"
    finally:
        with contextlib.suppress(RayError):
            serve.shutdown()
        ray.shutdown()


def _start_ray(plan: Plan) -> None:
    cluster.ask_for_token()
    if plan.cluster is not None:
        ray.init(address=plan.cluster, namespace=NAME, log_to_driver=False)
        return
    with cluster.on_loopback(ray):
        ray.init(
            address="local",
            namespace=NAME,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
            _node_ip_address=cluster.LOOPBACK,
            _system_config={"enable_metrics_collection": False},
        )


def _application(plan: Plan) -> Any:  # noqa: ANN401 - Ray says no types
    """The door, bound to the three deployments behind it."""
    actor = {
        "num_cpus": 0,  # replicas share the machine's cores, as many threads each as the plan says
        "num_gpus": plan.gpus,
        "runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(plan.threads), "ATLAS_BACKEND": ""}},
    }

    def deployment(kind: type[ModelReplica], name: str, *, at_once: int) -> Any:  # noqa: ANN401
        made = serve.deployment(
            kind,
            name=name,
            num_replicas=plan.count(name),
            max_ongoing_requests=at_once,
            max_queued_requests=plan.queue,
            ray_actor_options=actor,
            graceful_shutdown_timeout_s=STOP_SECONDS,
        )
        return made.bind(plan)

    door = serve.deployment(
        Door,
        name="door",
        max_ongoing_requests=1000,  # those that wait, wait behind it
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=STOP_SECONDS,
    )
    return door.bind(
        plan.results,
        deployment(PredictReplica, "predict", at_once=2),
        deployment(TryReplica, "try", at_once=2),
        deployment(AdaptReplica, "adapt", at_once=1),
    )
