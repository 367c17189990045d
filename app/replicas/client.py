"""Ask replicas over HTTP: predictions, comparisons and lessons, as the engine gives them.

    client = ReplicaClient.from_backend("ray://127.0.0.1:8000")     # as `atlas serve` prints it
    client.predict(images, ["cat", "dog"])
    recipe_id = client.put(recipe)
    client.compare(images, recipe_id)
    client.few_shot(support, method="auto", …)                      # a Run

It needs no Ray. Every failure is an AtlasError with a sentence; a `BusyError` says when to ask again.
"""

from __future__ import annotations

import http.client
import json
import re
import secrets
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from typing import Any

import atlas_engine as atlas
from app import text
from app.replicas import messages
from app.replicas.frames import Facts, iter_frames
from app.replicas.results import NoResultError
from app.replicas.trust import read_token

__all__ = ["VARIABLE", "BusyError", "ReplicaClient"]

VARIABLE = "ATLAS_BACKEND"
LOCAL = "127.0.0.1:8000"
BACKEND = re.compile(r"ray(?:://(\[[0-9a-fA-F:]+\]|[\w.-]+):(\d{1,5}))?/?")
SECONDS = 90.0  # without a byte: longer than the door waits for an answer


Waiting = Callable[[], AbstractContextManager[None]]


class BusyError(atlas.AtlasError):
    """No replica has room; `retry_seconds` says when to ask again."""

    def __init__(self, sentence: str, retry_seconds: float) -> None:
        super().__init__(sentence)
        self.retry_seconds = retry_seconds


class ReplicaClient:
    """Replicas at one address. Threads may share it: each request has a connection of its own.

    While it waits for them, it is inside of `waiting()`: the page gives its turn on the device back.
    """

    def __init__(
        self, host: str, port: int, *, token: str, seconds: float = SECONDS, waiting: Waiting = nullcontext
    ) -> None:
        self.host, self.port, self._token, self._seconds = host, port, token, seconds
        self._waiting = waiting

    @classmethod
    def from_backend(cls, value: str, *, waiting: Waiting = nullcontext) -> ReplicaClient:
        """The client of an ATLAS_BACKEND: `ray` for this machine's, or `ray://HOST:PORT`."""
        found = BACKEND.fullmatch(value.strip())
        if found is None:
            raise atlas.AtlasError(text.replicas.bad_backend(value))
        host, port = found.groups() if found[1] else LOCAL.split(":")
        return cls(host.strip("[]"), int(port), token=read_token(), waiting=waiting)

    @property
    def address(self) -> str:
        """Where they are asked."""
        return f"{self.host}:{self.port}"

    def facts(self) -> Facts:
        """Which model and bank they hold."""
        return self._json("GET", "/facts")

    def predict(
        self, images: Sequence[atlas.Image], classes: Sequence[str], *, templates: Sequence[str] = ()
    ) -> atlas.Predictions:
        """Zero-shot predictions."""
        facts = {**_names(images), "classes": list(classes), "templates": list(templates) or None}
        return messages.predictions_from(self._post("/predict", facts, images))

    def put(self, recipe: atlas.Recipe) -> str:
        """The id by which every replica can answer with this recipe from now on."""
        return str(self._json("POST", "/results", recipe.to_bytes())["id"])

    def get(self, recipe_id: str) -> atlas.Recipe:
        """The recipe of an id."""
        with self._request("GET", f"/results/{recipe_id}") as answer:
            return atlas.Recipe.from_bytes(answer.read(), name=recipe_id[:12])

    def compare(self, images: Sequence[atlas.Image], recipe_id: str) -> atlas.Comparison:
        """The images by zero-shot and by the recipe of an id; a NoResultError where it is not there."""
        return messages.comparison_from(self._post("/try", {**_names(images), "recipe": recipe_id}, images))

    def few_shot(
        self,
        support: atlas.Support,
        *,
        method: str,
        config: atlas.FewShotConfig,
        templates: Sequence[str],
        seed: int,
    ) -> atlas.Run[atlas.AdaptResult]:
        """A run that a replica makes: its steps come as they happen there, and `cancel()` ends it there.

        Its recipe lies in the store, so that any replica answers by `id_of(result.recipe.to_bytes())`.
        """
        run_id = secrets.token_hex(16)
        facts = {
            **_names(support.images),
            "labels": support.labels,
            "classes": support.classes,
            "method": method,
            "config": asdict(config),
            "templates": list(templates) or None,
            "seed": seed,
            "run": run_id,
        }

        def start(stop: threading.Event) -> Generator[atlas.Step, None, atlas.AdaptResult]:
            return self._learn(facts, support.images, run_id, stop)

        return atlas.Run(start)

    def stop(self, run_id: str) -> None:
        """Ask that a run ends with what it has."""
        self._json("POST", f"/stop/{run_id}", b"")

    def _learn(
        self, facts: Facts, images: Sequence[atlas.Image], run_id: str, stop: threading.Event
    ) -> Generator[atlas.Step, None, atlas.AdaptResult]:
        body = messages.encode(facts, messages.images_as_tensors(images))
        asked = False
        with self._request("POST", "/adapt", body) as answer:
            for message in iter_frames(self._reader(answer)):
                told, tensors = messages.decode(message)
                if told["kind"] == "result":
                    return messages.result_from(told, tensors)
                if told["kind"] == "refusal":
                    raise atlas.AtlasError(told["sentence"])
                preview = tensors.get("preview")
                recipe = None if preview is None else messages.recipe_from(preview)
                yield messages.step_from(told["step"], preview=recipe)
                if stop.is_set() and not asked:
                    asked = True
                    self.stop(run_id)
        raise atlas.AtlasError(text.replicas.LOST)

    # ---- HTTP

    def _reader(self, answer: http.client.HTTPResponse) -> Callable[[int], bytes]:
        """Exactly so many bytes of an answer, fewer at its end only."""

        def read(nbytes: int) -> bytes:
            parts = bytearray()
            with self._waiting():
                while len(parts) < nbytes and (part := answer.read(nbytes - len(parts))):
                    parts += part
            return bytes(parts)

        return read

    def _post(self, path: str, facts: Facts, images: Sequence[atlas.Image]) -> bytes:
        body = messages.encode(facts, messages.images_as_tensors(images))
        with self._request("POST", path, body) as answer:
            return answer.read()

    def _json(self, method: str, path: str, body: bytes | None = None) -> Facts:
        with self._request(method, path, body) as answer:
            found: Facts = json.loads(answer.read())
            return found

    @contextmanager
    def _request(
        self, method: str, path: str, body: bytes | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to a request, if it is one; else an AtlasError with the sentence of the refusal."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self._seconds)
        try:
            with self._waiting():
                connection.request(method, path, body, {"Authorization": f"Bearer {self._token}"})
                answer = connection.getresponse()
            if answer.status != 200:
                _raise_refusal(answer)
            yield answer
        except TimeoutError:
            raise atlas.AtlasError(text.replicas.TOO_SLOW) from None
        except ConnectionRefusedError:
            raise atlas.AtlasError(text.replicas.nobody(self.address)) from None
        except (OSError, http.client.HTTPException):
            raise atlas.AtlasError(text.replicas.LOST) from None
        finally:
            connection.close()


def _raise_refusal(answer: http.client.HTTPResponse) -> None:
    sentence = text.replicas.BROKEN
    with suppress(ValueError, KeyError, TypeError):
        sentence = str(json.loads(answer.read())["error"])
    if answer.status == 503:
        raise BusyError(sentence, float(answer.headers.get("Retry-After") or 1))
    raise (NoResultError if answer.status == 404 else atlas.AtlasError)(sentence)


def _names(images: Sequence[atlas.Image]) -> dict[str, Any]:
    return {"names": [image.name for image in images]}
