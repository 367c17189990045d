"""Any open_clip model by name, from the hub or a local file. Knows nothing of the model that ships.

The hub is asked once, briefly, before anything is fetched: a machine that cannot reach it gets a sentence
within seconds, and a model that was fetched earlier opens without it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from atlas_engine import runtime
from atlas_engine.clip.backbone import Backbone, Preprocessing
from atlas_engine.errors import HubError, ModelError, unknown_name

__all__ = ["first_line", "hub_answers", "load"]

PROBE_SECONDS = 5.0
TEMPLATES = "kinds"

_log = logging.getLogger(__name__)


def load(model: str, device: torch.device) -> Backbone:
    """The open_clip model that `model` names, frozen and in evaluation mode."""
    runtime.ensure_torchvision()
    arch, _, path = model.partition("@")
    with _own_words():
        clip, tokenizer = _from_file(arch, Path(path).expanduser()) if path else _from_hub(model)
    clip = clip.to(device).eval().requires_grad_(False)
    return Backbone(
        name=f"{arch}@{Path(path).name}" if path else model,  # a recipe holds it: no folder of this machine
        visual=clip.visual,
        preprocessing=_preprocessing(clip),
        logit_scale=float(clip.logit_scale.exp()),
        dim=_dim(clip),
        templates=TEMPLATES,
        device=device,
        text=_text_encoder(clip, tokenizer, device),
        whole=lambda: clip,
    )


def _from_file(arch: str, path: Path) -> tuple[Any, Any]:
    import open_clip

    _check_arch(arch)
    if path.suffix not in (".safetensors", ".pt", ".pth", ".bin"):
        raise ModelError(f"{path} is not a weights file. Give a .safetensors or .pt file, as in {arch}@file.")
    if not path.is_file():
        raise ModelError(f"{path} does not exist. Check the path after '@' in '{arch}@{path}'.")
    try:
        clip = open_clip.create_model(arch, pretrained=str(path), weights_only=True)
    except Exception as error:
        raise ModelError(
            f"{path} does not hold the weights of {arch}: {first_line(error)} "
            f"Give the architecture that the file was made with, before the '@'."
        ) from error
    return clip, open_clip.get_tokenizer(arch)


def _from_hub(model: str) -> tuple[Any, Any]:
    import open_clip

    arch, pretrained = _parse(model)
    reachable = hub_answers()
    try:
        with contextlib.nullcontext() if reachable else _offline():
            clip = open_clip.create_model(
                arch,
                pretrained=pretrained,
                require_pretrained=True,
                force_quick_gelu=_was_trained_with_quick_gelu(arch, pretrained),
            )
            return clip, open_clip.get_tokenizer(arch)
    except Exception as error:
        if not reachable:
            raise HubError(
                f"model '{model}' is not on this machine, and the model hub cannot be reached. Connect to "
                f"the internet and try again, give a local file as ARCH@path, or use the bundled model."
            ) from error
        raise ModelError(f"model '{model}' cannot be opened: {first_line(error)}") from error


def _parse(model: str) -> tuple[str, str | None]:
    """`ViT-B-32/openai` as ("ViT-B-32", "openai"); `hf-hub:org/name` as itself."""
    import open_clip

    if model.startswith("hf-hub:"):
        return model, None
    arch, _, pretrained = model.partition("/")
    _check_arch(arch)
    tags = open_clip.list_pretrained_tags_by_model(arch)
    if not pretrained:
        raise ModelError(
            f"model '{model}' names no weights. Add them, as in '{arch}/{(tags or ['TAG'])[0]}'."
        )
    if pretrained not in tags:
        raise ModelError(unknown_name(f"weights of {arch}", pretrained, tags))
    return arch, pretrained


def _was_trained_with_quick_gelu(arch: str, pretrained: str | None) -> bool:
    """Whether the weights want another GELU than their architecture's name says, as OpenAI's own do."""
    import open_clip

    facts = open_clip.get_pretrained_cfg(arch, pretrained) if pretrained else None
    return bool((facts or {}).get("quick_gelu"))


def _check_arch(arch: str) -> None:
    import open_clip

    known = open_clip.list_models()
    if arch not in known:
        near = unknown_name("model", arch, known).split(" Known:")[0]
        raise ModelError(f"{near} Use 'bundled', ARCH/PRETRAINED, hf-hub:org/name or ARCH@path.")


def hub_answers() -> bool:
    """Whether the hub answers within a few seconds; False at once where it is switched off."""
    import httpx
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return False
    try:
        httpx.head(constants.ENDPOINT, timeout=PROBE_SECONDS)
    except httpx.HTTPError as error:
        _log.info("the model hub does not answer: %s", type(error).__name__)
        return False
    return True


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Tell the hub client to look on this machine only: without this it retries for minutes."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def _own_words() -> Iterator[None]:
    """Keep open_clip's log lines off a terminal that nobody set up for them; errors carry what matters."""
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)
    try:
        yield
    finally:
        root.removeHandler(silent)


def _preprocessing(clip: nn.Module) -> Preprocessing:
    import open_clip

    config = open_clip.get_model_preprocess_cfg(clip)
    size = config["size"]
    return Preprocessing(
        size=size if isinstance(size, int) else int(size[0]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        resize=config.get("resize_mode", "shortest"),
        interpolation=config.get("interpolation", "bicubic"),
    )


def _dim(clip: nn.Module) -> int:
    visual: Any = clip.visual
    return int(getattr(visual, "output_dim", None) or visual.head.proj.out_features)


def _text_encoder(clip: Any, tokenizer: Any, device: torch.device) -> Any:  # noqa: ANN401 - open_clip's types
    def encode(texts: Sequence[str]) -> Tensor:
        features: Tensor = clip.encode_text(tokenizer(list(texts)).to(device))
        return features

    return encode


def first_line(error: Exception) -> str:
    """The first line of what an error says, as a sentence."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300].rstrip(".") + "."
