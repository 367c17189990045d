"""Models by name. `open_backbone` takes one of these names:

    bundled                        the model that ships in assets/model
    ViT-B-32/openai                ARCH/PRETRAINED as open_clip spells them; fetched from the hub once
    hf-hub:org/name                an open_clip model on the hub
    ViT-B-32@path/to/weights.pt    ARCH@path to a local file of open_clip, OpenAI or `transformers`
    clip-vit-b-16-visual           an image tower without a text tower (`clip.visual_tower`)

A local file is read without running anything in it. OpenAI's weights need QuickGELU: where the file shows
that it holds such weights (`checkpoints.activation`), ViT-B-32 means ViT-B-32-quickgelu.

The hub is probed, with a short time-out, before anything is fetched. A machine that cannot reach it gets
an error within seconds, and a model that was fetched before opens without the hub.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from atlas_engine import runtime
from atlas_engine.clip import bundled, visual_tower
from atlas_engine.clip.backbone import Backbone, Preprocessing
from atlas_engine.clip.checkpoints.activation import GELU, QUICK_GELU, activation_of, find_activation
from atlas_engine.clip.checkpoints.whole_clip import needs_conversion, read_clip
from atlas_engine.clip.hub import (
    HUB_PREFIX,
    HubFile,
    OnBytes,
    fetch_files,
    files_to_fetch,
    find_fetched,
    first_line,
    is_hub_reachable,
)
from atlas_engine.errors import HubError, ModelError, unknown_name

__all__ = ["hub_repository_of", "model_files_to_fetch", "open_backbone"]

TEMPLATES = "kinds"
BUNDLED_NAMES = ("bundled", bundled.NAME)
WEIGHTS_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")  # where it lists none
CONFIG_FILE = "open_clip_config.json"

_log = logging.getLogger(__name__)


def open_backbone(
    model: str = "bundled", *, device: torch.device, on_bytes: OnBytes | None = None
) -> Backbone:
    """The model called `model`, on `device`, in evaluation mode with every weight frozen.

    `on_bytes` is called as a model that is not here yet arrives from the hub.
    """
    if model in BUNDLED_NAMES:
        return bundled.load(device)
    if visual_tower.is_visual_tower(model):
        with _without_log_lines():
            return visual_tower.load(model, device)
    runtime.ensure_torchvision()
    arch, _, path = model.partition("@")
    with _without_log_lines():
        clip, tokenizer = _from_file(arch, Path(path).expanduser()) if path else _from_hub(model, on_bytes)
    if path:
        _report_unknown_activation(arch, Path(path).expanduser(), clip)
    clip = clip.to(device).eval().requires_grad_(False)
    return Backbone(
        name=f"{arch}@{Path(path).name}" if path else model,  # saved in recipes: no folder of this machine
        visual=clip.visual,
        preprocessing=_preprocessing(clip),
        logit_scale=float(clip.logit_scale.exp()),
        dim=_embedding_dim(clip),
        templates=TEMPLATES,
        activation=activation_of(clip),
        device=device,
        encode_text=_text_encoder(clip, tokenizer, device),
    )


def model_files_to_fetch(model: str) -> tuple[HubFile, ...]:
    """The files that opening `model` will fetch, with their sizes; none if it is on this machine."""
    if model in BUNDLED_NAMES or "@" in model:
        return ()
    runtime.ensure_torchvision()
    return _missing_files(model, *_parse(model))


def hub_repository_of(model: str) -> str | None:
    """The repository on the hub that a model's weights come from; None for other models.

    >>> hub_repository_of("hf-hub:owner/name"), hub_repository_of("bundled")
    ('owner/name', None)
    """
    if model in BUNDLED_NAMES or "@" in model or visual_tower.is_visual_tower(model):
        return None
    runtime.ensure_torchvision()
    try:
        place = _place_on_hub(*_parse(model))
    except ModelError:  # a name that only the recipe's own machine knows
        return None
    return None if place is None else place[0]


def _from_file(arch: str, path: Path) -> tuple[Any, Any]:
    """The open_clip model and its tokenizer, with the weights in `path`."""
    import open_clip

    _check_arch(arch)
    if path.suffix not in (".safetensors", ".pt", ".pth", ".bin"):
        raise ModelError(f"{path} is not a weights file. Give a .safetensors or .pt file, as in {arch}@file.")
    if not path.is_file():
        raise ModelError(f"{path} does not exist. Check the path after '@' in '{arch}@{path}'.")
    try:
        clip = _load_file(arch, path)
    except Exception as error:
        raise ModelError(
            f"{path} does not hold the weights of {arch}: {first_line(error)} "
            f"Give the architecture that the file was made with, before the '@'."
        ) from error
    return clip, open_clip.get_tokenizer(arch)


def _load_file(arch: str, path: Path) -> Any:  # noqa: ANN401 - open_clip has no types
    """The open_clip model with the weights in `path` and the activation that they were trained with."""
    import open_clip

    options = {"weights_only": True, "force_quick_gelu": find_activation(path) == QUICK_GELU}
    if not needs_conversion(path):
        return open_clip.create_model(arch, pretrained=str(path), **options)
    clip = open_clip.create_model(arch, **options)
    shapes = {name: tuple(weights.shape) for name, weights in clip.state_dict().items()}
    clip.load_state_dict(read_clip(path, shapes=shapes))
    return clip


def _report_unknown_activation(arch: str, path: Path, clip: nn.Module) -> None:
    """Log a sentence if the model has a QuickGELU variant and nothing tells which one the file belongs to."""
    import open_clip

    variant = f"{arch}-quickgelu"
    if activation_of(clip) == GELU and variant in open_clip.list_models() and find_activation(path) is None:
        _log.warning(
            "%s does not tell which activation function its weights were trained with: %s computes GELU. If "
            "they come from OpenAI's weights, open %s@%s instead.",
            *(path.name, arch, variant, path.name),
        )


def _from_hub(model: str, on_bytes: OnBytes | None) -> tuple[Any, Any]:
    """The open_clip model and its tokenizer, from the hub or from what was fetched before.

    The weights are fetched and checked here; open_clip then finds them on this machine.
    """
    import open_clip

    arch, pretrained = _parse(model)
    if missing := _missing_files(model, arch, pretrained):
        fetch_files(missing, on_bytes=on_bytes)
    reachable = is_hub_reachable()
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
            raise _out_of_reach(model) from error
        raise ModelError(f"model '{model}' cannot be opened: {first_line(error)}") from error


def _parse(model: str) -> tuple[str, str | None]:
    """`ViT-B-32/openai` as ("ViT-B-32", "openai"); `hf-hub:org/name` as itself."""
    import open_clip

    if model.startswith(HUB_PREFIX):
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


def _missing_files(model: str, arch: str, pretrained: str | None) -> tuple[HubFile, ...]:
    """The files that are still on the hub; none if the weights are here, or lie elsewhere than on the hub."""
    place = _place_on_hub(arch, pretrained)
    if place is None or find_fetched(*place) is not None:
        return ()
    if not is_hub_reachable():
        raise _out_of_reach(model)
    return files_to_fetch(*place, beside=(CONFIG_FILE,))


def _out_of_reach(model: str) -> HubError:
    return HubError(
        f"model '{model}' is not on this machine, and the model hub cannot be reached. Connect to "
        f"the internet and try again, give a local file as ARCH@path, or use the bundled model."
    )


def _place_on_hub(arch: str, pretrained: str | None) -> tuple[str, tuple[str, ...]] | None:
    """The repository of a model, and the names that its weights may have, in open_clip's order.

    >>> _place_on_hub("ViT-B-32", "openai")
    ('timm/vit_base_patch32_clip_224.openai', ('open_clip_model.safetensors', 'open_clip_pytorch_model.bin'))
    """
    import open_clip

    if pretrained is None:
        return arch.removeprefix(HUB_PREFIX), WEIGHTS_FILES
    hub_id = str(open_clip.get_pretrained_cfg(arch, pretrained).get("hf_hub") or "")
    repository, _, file = hub_id.rpartition("/")
    if not repository:
        return None
    if not file or file in WEIGHTS_FILES:
        return repository, WEIGHTS_FILES
    stem, _, ending = file.rpartition(".")
    return repository, (f"{stem}.safetensors", file) if ending in ("bin", "pth") else (file,)


def _check_arch(arch: str) -> None:
    import open_clip

    known = open_clip.list_models()
    if arch not in known:
        near = unknown_name("model", arch, known).split(" Known:")[0]
        raise ModelError(f"{near} Use 'bundled', ARCH/PRETRAINED, hf-hub:org/name or ARCH@path.")


def _was_trained_with_quick_gelu(arch: str, pretrained: str | None) -> bool:
    """Whether the weights need QuickGELU although the architecture's name does not say so, as OpenAI's do."""
    import open_clip

    config = open_clip.get_pretrained_cfg(arch, pretrained) if pretrained else None
    return bool((config or {}).get("quick_gelu"))


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Make the hub client look on this machine only: otherwise it retries for minutes."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def _without_log_lines() -> Iterator[None]:
    """Keep open_clip from writing log lines to a terminal where logging was not set up.

    Where it was, one line is left out: that a model has random weights, before `read_clip` loads its own.
    """
    root, handler = logging.getLogger(), logging.NullHandler()

    def is_true(record: logging.LogRecord) -> bool:
        return "No pretrained weights loaded" not in record.getMessage()

    root.addHandler(handler)
    root.addFilter(is_true)
    try:
        yield
    finally:
        root.removeFilter(is_true)
        root.removeHandler(handler)


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


def _embedding_dim(clip: nn.Module) -> int:
    visual: Any = clip.visual
    return int(getattr(visual, "output_dim", None) or visual.head.proj.out_features)


def _text_encoder(
    clip: Any,  # noqa: ANN401 - open_clip has no types
    tokenizer: Any,  # noqa: ANN401
    device: torch.device,
) -> Callable[[Sequence[str]], Tensor]:
    def encode(sentences: Sequence[str]) -> Tensor:
        features: Tensor = clip.encode_text(tokenizer(list(sentences)).to(device))
        return features

    return encode
