"""A backend for Label Studio: a recipe proposes classes, and learns on from what people choose.

    python notebooks/label_studio_backend.py --recipe pets.atlas.safetensors --images /data/media --port 9090

In Label Studio, give http://localhost:9090 under *Settings → Model*. The labelling interface needs one
<Image> and, for it, one <Choices> whose choices are called as the recipe's classes:

    <View>
      <Image name="image" value="$image"/>
      <Choices name="animal" toName="image"><Choice value="cat"/><Choice value="dog"/></Choices>
    </View>

`--images` is the folder that Label Studio's own paths are relative to: its media folder for uploads, the
document root for local files. Nothing is fetched from anywhere else. An image that is none of the recipe's
classes gets the choice "none of these" where the interface has it, and no proposal where it has not.

With `--learn-every 8`, a webhook for annotations (*Settings → Webhooks*) teaches: after as many new ones, of
two classes at least, the recipe learns on from them (`Atlas.continue_from`), and is saved beside the first
as `pets-1.atlas.safetensors`, `pets-2.atlas.safetensors`, …

The server asks nobody for a password, so it listens on this machine alone unless --host says otherwise. It
needs no package of Label Studio's; `tests/test_label_studio_backend.py` runs it against label-studio-sdk.
"""

from __future__ import annotations

import argparse
import json
import logging
import threading
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import atlas_engine as atlas
from atlas_engine.errors import AtlasError, SupportError

MOST_BYTES = 16 << 20  # of a request: tasks are names of images, not images
LEARNS_FROM = ("ANNOTATION_CREATED", "ANNOTATIONS_CREATED", "ANNOTATION_UPDATED")
NONE_OF_THESE = "none of these"
logger = logging.getLogger("label_studio_backend")


@dataclass(frozen=True)
class Interface:
    """The tags of a labelling interface that a proposal names, and how each class is called there."""

    choices: str
    image: str
    column: str  # of a task's data
    names: Mapping[str, str]  # the choice of each class, by its tidy name

    @classmethod
    def read(cls, config: str, classes: tuple[str, ...]) -> Interface:
        """The interface of Label Studio's XML; a `SupportError` where it cannot show the classes."""
        try:
            root = ET.fromstring(config)
        except ET.ParseError as error:
            raise SupportError(f"the labelling interface is no XML ({error}). Save it anew.") from None
        images = {tag.get("name"): tag.get("value", "") for tag in root.iter("Image")}
        for tag in root.iter("Choices"):
            if tag.get("toName") not in images:
                continue
            values = [str(choice.get("value")) for choice in tag.iter("Choice")]
            names = {tidy(value): value for value in values}
            missing = [name for name in classes if tidy(name) not in {*names, NONE_OF_THESE}]
            if missing:
                raise SupportError(
                    f"the labelling interface has no choice '{missing[0]}'. "
                    f'Add <Choice value="{missing[0]}"/>.'
                )
            image = str(tag.get("toName"))
            return cls(str(tag.get("name")), image, images[image].removeprefix("$"), names)
        raise SupportError(
            "the labelling interface has no <Choices> for an <Image>. Add one with the recipe's classes."
        )

    def proposal(self, label: str, score: float, version: str) -> dict[str, Any]:
        """A prediction in Label Studio's format; without a result where there is no such choice."""
        choice = self.names.get(tidy(label))
        region = {
            "from_name": self.choices,
            "to_name": self.image,
            "type": "choices",
            "value": {"choices": [choice]},
        }
        return {"model_version": version, "score": score, "result": [] if choice is None else [region]}


class Backend:
    """A recipe that answers tasks and learns on from annotations. Several threads may call it."""

    def __init__(
        self, engine: atlas.Atlas, recipe: atlas.Recipe, *, images: Path, save_to: Path, learn_every: int = 0
    ) -> None:
        """`save_to` names the recipes that it learns, each from `learn_every` new annotations; 0 for none."""
        self.engine, self.recipe, self.learn_every = engine, recipe, learn_every
        self.root, self.rounds = images.resolve(), 0
        self._folder, self._name = save_to.parent, save_to.name.split(".")[0]
        self._labelled: dict[Path, str] = {}  # the class of each image since the recipe last learned
        self._busy = threading.Lock()

    @property
    def version(self) -> str:
        """The name that Label Studio keeps beside each proposal."""
        return f"{self._name}-{self.rounds}" if self.rounds else self._name

    def setup(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The version, once the labelling interface fits the recipe."""
        Interface.read(str(request.get("schema", "")), self.recipe.classes)
        return {"model_version": self.version}

    def predict(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """A proposal for each task, in their order."""
        interface = Interface.read(str(request.get("label_config", "")), self.recipe.classes)
        files = [self.find_image(task, interface) for task in request.get("tasks") or ()]
        if not files:
            return {"results": [], "model_version": self.version}
        with self._busy:
            answers, version = self.engine.compare(files, self.recipe).adapted, self.version
        scores = answers.probs.amax(dim=1).tolist()
        proposals = [
            interface.proposal(label, score, version)
            for label, score in zip(answers.answers, scores, strict=True)
        ]
        return {"results": proposals, "model_version": version}

    def webhook(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Remember what a person chose, and learn on where enough has come; the version after it."""
        if self.learn_every and event.get("action") in LEARNS_FROM:
            project = event.get("project") or {}
            interface = Interface.read(str(project.get("label_config", "")), self.recipe.classes)
            several = event.get("annotation") or ()
            with self._busy:
                for annotation in [several] if isinstance(several, Mapping) else several:
                    choice = read_choice(annotation, interface)
                    if choice is not None:
                        image = self.find_image(event.get("task") or {}, interface)
                        self._labelled[image] = self._class_of(choice)
                if len(self._labelled) >= self.learn_every and len(set(self._labelled.values())) > 1:
                    self._learn_on()
        return {"model_version": self.version}

    def find_image(self, task: Mapping[str, Any], interface: Interface) -> Path:
        """The file of a task's image, which must lie below the folder of images."""
        address = str((task.get("data") or {}).get(interface.column, ""))
        parts = urlsplit(address)
        asked = parse_qs(parts.query).get("d")
        inner = asked[0] if asked else unquote(parts.path).removeprefix("/data/").lstrip("/")
        path = (self.root / inner).resolve()
        if parts.scheme or not path.is_relative_to(self.root) or not path.is_file():
            raise SupportError(
                f"the image '{address}' is not in the folder of images. Give Label Studio's media folder, or "
                "the root of its local files, as --images."
            )
        return path

    def _class_of(self, choice: str) -> str:
        """The recipe's name of a choice; a new class is called as the choice."""
        known = {tidy(name): name for name in self.recipe.classes}
        return known.get(tidy(choice), atlas.tidy_name(choice.replace("_", " ")))

    def _learn_on(self) -> None:
        """Learn on from the remembered annotations, forget them, and save the new recipe."""
        classes = tuple(dict.fromkeys(self._labelled.values()))
        labels = tuple(classes.index(name) for name in self._labelled.values())
        images = self.engine.read_images(list(self._labelled))
        result = self.engine.continue_from(self.recipe, atlas.Support(images, labels, classes)).result()
        self.recipe, self.rounds = result.recipe, self.rounds + 1
        self._labelled.clear()
        self.recipe.save(self._folder / f"{self.version}.atlas.safetensors")
        logger.info("%s: %s", self.version, result.verdict.sentence if result.verdict else "learned on")


def tidy(name: str) -> str:
    """The name as classes are compared: `Dark_Green` is `dark green`."""
    return atlas.tidy_name(name.replace("_", " ")).casefold()


def read_choice(annotation: Mapping[str, Any], interface: Interface) -> str | None:
    """What the annotation chose for the interface's <Choices>; None where it was cancelled or left open."""
    if annotation.get("was_cancelled"):
        return None
    for region in annotation.get("result") or ():
        choices = (region.get("value") or {}).get("choices")
        if region.get("from_name") == interface.choices and choices:
            return str(choices[0])
    return None


# ---- HTTP


def make_server(backend: Backend, *, port: int, host: str = "127.0.0.1") -> ThreadingHTTPServer:
    """A server of the backend's routes; with port 0, at any free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if urlsplit(self.path).path in ("/", "/health"):
                self._answer(200, {"status": "UP", "model_class": "aTLAS", "model_version": backend.version})
            else:
                self._answer(404, {"detail": "There is nothing at this address."})

        def do_POST(self) -> None:
            routes = {
                "/setup": (backend.setup, 200),
                "/predict": (backend.predict, 200),
                "/webhook": (backend.webhook, 201),
            }
            action, status = routes.get(urlsplit(self.path).path, (None, 404))
            if action is None:
                self._answer(404, {"detail": "There is nothing at this address."})
                return
            try:
                self._answer(status, action(self._read()))
            except AtlasError as error:
                self._answer(400, {"detail": str(error)})
            except Exception:  # the border: the log has the traceback, the answer has none
                logger.exception("a request to %s failed", self.path)
                self._answer(500, {"detail": "This failed. The backend's log says why."})

        def _read(self) -> dict[str, Any]:
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > MOST_BYTES:
                raise SupportError(f"a request must say its length, of at most {MOST_BYTES} bytes.")
            try:
                request = json.loads(self.rfile.read(int(length)))
            except ValueError as error:
                raise SupportError(f"the request is no JSON ({error}).") from None
            if not isinstance(request, dict):
                raise SupportError("the request is no JSON object.")
            return request

        def _answer(self, status: int, content: Mapping[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:
            logger.debug(format, *values)

    return ThreadingHTTPServer((host, port), Handler)


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="A recipe as a machine-learning backend of Label Studio.")
    parser.add_argument("--recipe", type=Path, required=True, help="a recipe file")
    parser.add_argument("--images", type=Path, required=True, help="the folder that image paths start from")
    parser.add_argument("--model", default="bundled", help="the recipe's model (default: bundled)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at")
    parser.add_argument("--port", type=int, default=9090, help="port to listen at (default: 9090)")
    parser.add_argument("--learn-every", type=int, default=0, help="annotations to learn on from (0: never)")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with atlas.open(given.model) as engine:
        backend = Backend(
            engine,
            atlas.Recipe.load(given.recipe),
            images=given.images,
            save_to=given.recipe,
            learn_every=given.learn_every,
        )
        with make_server(backend, port=given.port, host=given.host) as server:
            logger.info("%s answers at http://%s:%d", backend.version, *server.server_address[:2])
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                logger.info("stopped")


if __name__ == "__main__":
    main()
