"""The engine of a page whose questions and lessons replicas compute. Handlers use it as any engine.

    engine = ReplicatedAtlas.of(atlas.open(), ReplicaClient.from_backend("ray"))
    engine.few_shot(support).result()            # learned by a replica
    engine.predict(images, classes)              # and answered by one

This is the whole seam: `predict`, `compare`, `comparer` and `few_shot` go to the replicas. Everything else
(learning without labels, forgetting, what is inside of a recipe, exports) is computed in this process, and
so is a few-shot run with a bank, a layout, a budget or validation images of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import atlas_engine as atlas
from app import text
from app.priority_lock import DEVICE
from app.replicas.client import VARIABLE, ReplicaClient
from app.replicas.results import NoResultError, id_of
from app.session import OpenedModel

__all__ = ["ReplicatedAtlas", "check_replicas", "with_replicas"]

FORWARDED = {"method", "config", "templates", "seed"}  # the arguments of `few_shot` that a replica takes


def with_replicas(opened: OpenedModel) -> OpenedModel:
    """The opened model with the replicas that ATLAS_BACKEND names; the same where it names none."""
    backend = os.environ.get(VARIABLE, "")
    if not backend:
        return opened
    client = ReplicaClient.from_backend(backend, waiting=DEVICE.paused)  # others compute here meanwhile
    engine = ReplicatedAtlas.of(opened.engine, client)
    return replace(opened, engine=engine, replicas=int(client.facts()["replicas"]))


def check_replicas(engine: atlas.Atlas) -> str:
    """What is wrong with an engine's replicas, for `/readyz`; '' where they answer, or there are none."""
    try:
        _ = isinstance(engine, ReplicatedAtlas) and engine.client.facts()
    except atlas.AtlasError:
        return "do not answer"
    return ""


class ReplicatedAtlas(atlas.Atlas):
    """An engine on this machine, with replicas that compute for it."""

    client: ReplicaClient

    @classmethod
    def of(cls, engine: atlas.Atlas, client: ReplicaClient) -> ReplicatedAtlas:
        """The engine with these replicas; an AtlasError where there are none, or of another model or bank.

        Two engines of one model give the same answers, so that a page may mix what both computed.
        """
        facts = client.facts()
        bank = None if engine.bank_path is None else engine.bank.fingerprint
        for here, there in ((engine.fingerprint, "model_fingerprint"), (bank, "bank_fingerprint")):
            if here != facts[there]:
                raise atlas.AtlasError(
                    text.replicas.other_model(
                        f"{engine.backbone.name} ({str(here)[:12]})",
                        f"{facts['model']} ({str(facts[there])[:12]})",
                    )
                )
        made = cls(engine.backbone, bank_path=engine.bank_path, cache=engine.cache)
        made.client = client
        if bank is not None:
            made.bank = engine.bank  # it is in memory already
        return made

    def predict(
        self,
        images: Sequence[Any],
        classes: Sequence[str],
        *,
        templates: Any = None,  # noqa: ANN401 - as the engine takes them
    ) -> atlas.Predictions:
        """Zero-shot predictions, by a replica."""
        sentences = atlas.find_templates(templates) if templates else ()
        return self.client.predict(self._shrink(self.read_images(images)), classes, templates=sentences)

    def comparer(
        self,
        recipe: atlas.Recipe,
        *,
        bank: Any = None,  # noqa: ANN401 - as above
    ) -> Callable[[Sequence[Any]], atlas.Comparison]:
        """`compare` of one recipe: its id goes to the replicas, and its bytes where the store lacks them.

        Nothing is sent before the first images come: whoever asks for this may hold a lock.
        """
        if bank is not None:
            return super().comparer(recipe, bank=bank)
        recipe_id = id_of(recipe.to_bytes())

        def compare(images: Sequence[Any]) -> atlas.Comparison:
            small = self._shrink(self.read_images(images))
            try:
                return self.client.compare(small, recipe_id)
            except NoResultError:  # it was learned elsewhere, or its days are over
                return self.client.compare(small, self.client.put(recipe))

        return compare

    def few_shot(
        self,
        support: atlas.Support,
        **settings: Any,  # noqa: ANN401 - as above
    ) -> atlas.Run[atlas.AdaptResult]:
        """A run by a replica; by this process where it needs what only this process has."""
        given = {name: value for name, value in settings.items() if value is not None}
        if not given.keys() <= FORWARDED:
            return super().few_shot(support, **settings)
        templates = given.get("templates")
        small = atlas.Support(self._shrink(support.images), support.labels, support.classes)
        return self.client.few_shot(
            small,
            method=given.get("method", "auto"),
            config=given.get("config") or atlas.FewShotConfig(),
            templates=atlas.find_templates(templates) if templates else (),
            seed=given.get("seed", 0),
        )

    def _shrink(self, images: Sequence[atlas.Image]) -> tuple[atlas.Image, ...]:
        """The images at the size that the model sees: fewer bytes to send, and the same answers."""
        pixels = self.pixels(images)  # (N 3 S S)
        return tuple(
            atlas.Image(image.name, small.permute(1, 2, 0).numpy())
            for image, small in zip(images, pixels, strict=True)
        )
