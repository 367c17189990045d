"""The known public banks of task vectors for CLIP, and the hub ids of their checkpoints.

The twenty tasks are those of Wang et al. 2024 (TALL masks, arXiv 2405.07813); the first eight those of task
arithmetic (Ilharco et al. 2023). Each checkpoint is a `transformers` image tower without its projection,
fine-tuned from OpenAI's weights: 4,000 steps of Adam with a frozen text tower.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PUBLIC_BANKS", "PublicBank"]

TASKS = (
    "sun397",
    "stanford-cars",
    "resisc45",
    "eurosat",
    "svhn",
    "gtsrb",
    "mnist",
    "dtd",
    "oxford_flowers102",
    "pcam",
    "fer2013",
    "oxford-iiit-pet",
    "stl10",
    "cifar100",
    "cifar10",
    "food101",
    "fashion_mnist",
    "emnist_letters",
    "kmnist",
    "rendered-sst2",
)


@dataclass(frozen=True)
class PublicBank:
    """Fine-tuned checkpoints of one model: the name of the model, and a hub id per task.

    A bank without hub ids has to be fetched and unpacked by hand; `about` says how.
    """

    name: str
    model: str
    checkpoints: dict[str, str]
    about: str


def _tanganke(short: str, arch: str, repository: str) -> PublicBank:
    checkpoints = {task: f"tanganke/{repository}_{task}" for task in TASKS}
    about = f"{len(TASKS)} fine-tunings of OpenAI's {arch}"
    return PublicBank(f"tanganke-{short}", f"{arch}-quickgelu/openai", checkpoints, about)


PUBLIC_BANKS: dict[str, PublicBank] = {
    bank.name: bank
    for bank in (
        _tanganke("b32", "ViT-B-32", "clip-vit-base-patch32"),
        _tanganke("b16", "ViT-B-16", "clip-vit-base-patch16"),
        _tanganke("l14", "ViT-L-14", "clip-vit-large-patch14"),
        PublicBank(
            "fredzzhang-atlas",
            "ViT-B-32-quickgelu/openai",
            {},
            "the paper's own 22 tasks, pickled: unpack the archives of fredzzhang/atlas, import the folder",
        ),
        PublicBank(
            "tall-masks",
            "ViT-B-32-quickgelu/openai",
            {},
            "20 tasks as state dicts: fetch nik-dim/tall_masks, import its folder single_task/ViT-B-32",
        ),
    )
}
