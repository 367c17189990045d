"""Tip-Adapter: the features of the support as a cache of keys that vote for their classes.

    logits = logit_scale · f tᵀ + α · exp(−β (1 − f keysᵀ)) · votes

(Zhang et al., ECCV 2022.) In the paper ``votes`` is one-hot, so a class with more keys weighs more. Here a
key of class c votes with N / (C · n_c), which is 1 where all classes have the same count: a class is not more
likely because somebody took more images of it.

The paper searches α and β on a validation set. Here they are searched by leaving each image out of its own
cache, which is exact and costs no more than one pass: dropping a key takes one number out of a sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.errors import RecipeError
from atlas_engine.heads.base import (
    UNUSED,
    LabelledFeatures,
    TensorRate,
    class_balanced_weights,
    one_hot,
    text_logits,
    validate_tensors,
)

__all__ = ["Tip"]

START_ALPHA, START_BETA = 2.0, 1.0  # where the aTLAS paper starts the joint form
ALPHAS = (0.0, *(2.0**power for power in range(-3, 7)))  # 0, then 1/8 to 64
BETAS = tuple(2.0**power for power in range(-1, 6))  # 1/2 to 32
MAX_QUERIES = 512  # images that are left out in the search; more add nothing
STEPS, LR, BATCH = 40, 1e-3, 256  # learning rate and batch are the paper's
KEYS_LR_SCALE = 0.01  # the paper's 0.001 at the loop's learning rate of 0.1


@dataclass(frozen=True, eq=False)
class Tip:
    """A cache of keys. α = root_alpha² and β = root_beta² cannot turn negative, and α may be exactly 0."""

    keys: Float[Tensor, "N D"]
    labels: Int[Tensor, " N"]  # class numbers; an UNUSED key has no vote
    root_alpha: Float[Tensor, " 1"]
    root_beta: Float[Tensor, " 1"]
    text: Float[Tensor, "C D"]
    logit_scale: float

    @classmethod
    def start(cls, support: LabelledFeatures, *, alpha: float = START_ALPHA, beta: float = START_BETA) -> Tip:
        """The cache of the support at a given α and β, before any search or training."""
        roots = torch.tensor([alpha, beta], device=support.features.device).sqrt()
        return cls(support.features, support.labels, roots[:1], roots[1:], support.text, support.logit_scale)

    @classmethod
    def grid_search(cls, support: LabelledFeatures) -> Tip:
        """Tip-Adapter without training: the α and β that get the most images right when each is left out.

        Among equals the smallest cross-entropy wins. Cross-entropy alone would choose a small α on a model
        with a small logit scale, because it measures confidence too. An image that is the only one of its
        class cannot be left out; where all are, α and β stay at their start.
        """
        queries = _search_queries(support)
        if not len(queries):
            return cls.start(support)
        cosines = support.features[queries] @ support.features.T  # (Q N)
        grid = [_leave_one_out_scores(support, queries, _affinity(cosines, beta)) for beta in BETAS]
        accuracies, losses = (
            torch.stack(column) for column in zip(*grid, strict=True)
        )  # each (betas alphas)
        losses_of_best = losses.masked_fill(accuracies < accuracies.max(), torch.inf)
        beta, alpha = divmod(int(losses_of_best.argmin()), len(ALPHAS))
        return cls.start(support, alpha=ALPHAS[alpha], beta=BETAS[beta])

    @classmethod
    def fit(cls, support: LabelledFeatures, *, steps: int = STEPS, lr: float = LR) -> Tip:
        """Tip-Adapter-F: keys, α and β trained, from where the grid search ended."""
        start = cls.grid_search(support)
        with torch.inference_mode(False), torch.enable_grad():
            return start.at(_train(start, support, steps=steps, lr=lr))

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], text: Float[Tensor, "C D"], *, logit_scale: float
    ) -> Tip:
        """The cache that a recipe stored as ``tensors``."""
        count = len(tensors["labels"]) if "labels" in tensors and tensors["labels"].ndim == 1 else 0
        shapes: dict[str, tuple[int, ...]] = {"keys": (count, text.shape[1]), "labels": (count,)}
        own = validate_tensors(tensors, shapes | {"root_alpha": (1,), "root_beta": (1,)})
        labels = own.pop("labels").long()
        if not torch.equal(labels.float(), tensors["labels"].float()) or not bool(
            ((labels >= UNUSED) & (labels < len(text))).all()
        ):
            raise RecipeError(
                f"the head's 'labels' are not class numbers from 0 to {len(text) - 1}. Use the classes that "
                "the head was made with."
            )
        return cls(labels=labels, text=text, logit_scale=logit_scale, **own)

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Keys, their class numbers as float32, and the roots of α and β."""
        return {
            "keys": self.keys,
            "labels": self.labels.float(),
            "root_alpha": self.root_alpha,
            "root_beta": self.root_beta,
        }

    @property
    def rates(self) -> Mapping[str, TensorRate]:
        """Keys, entries of unit vectors, learn more slowly than α and β."""
        return {
            "keys": TensorRate(KEYS_LR_SCALE),
            "root_alpha": TensorRate(0.1),
            "root_beta": TensorRate(0.1),
        }

    def logits(
        self, features: Float[Tensor, "B D"], overrides: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "B C"]:
        """Zero-shot logits plus α times the votes of the keys."""
        tensors = {**self.tensors, **(overrides or {})}
        affinity = _affinity(features.float() @ tensors["keys"].T, tensors["root_beta"].square())  # (B N)
        zero_shot = text_logits(features, self.text, logit_scale=self.logit_scale)
        votes = affinity @ _vote_weights(self.labels, len(self.text))  # (B N) @ (N C) -> (B C)
        return zero_shot + tensors["root_alpha"].square() * votes

    def at(self, values: Mapping[str, Tensor]) -> Tip:
        """The same cache with other keys, α or β."""
        tensors = {name: value.detach() for name, value in {**self.tensors, **values}.items()}
        return dataclasses.replace(
            self, keys=tensors["keys"], root_alpha=tensors["root_alpha"], root_beta=tensors["root_beta"]
        )


def _affinity(cosines: Float[Tensor, "Q N"], beta: Tensor | float) -> Float[Tensor, "Q N"]:
    """exp(−β (1 − cosine)), in 0 … 1."""
    return torch.exp(beta * (cosines - 1.0))


def _vote_weights(labels: Int[Tensor, " N"], classes: int) -> Float[Tensor, "N C"]:
    """N / (C n_c) at each used key's class; N and C count used keys and the classes that have any."""
    hot = one_hot(labels, classes)
    return hot * (class_balanced_weights(hot) * hot.sum()).unsqueeze(1)


def _leave_one_out_votes(
    affinity: Float[Tensor, "Q N"],
    support: LabelledFeatures,
    queries: Int[Tensor, " Q"],
    leave_out: Bool[Tensor, " Q"],
) -> Float[Tensor, "Q C"]:
    """The votes for each query (a row of the support), without its own key where ``leave_out`` says so.

    Without that key a class of n images has n − 1, and one that had only this image has no vote at all.
    """
    hot = support.one_hot
    own_class = hot[queries] * leave_out.unsqueeze(1)  # (Q C)
    own_key = torch.zeros_like(affinity).scatter(1, queries.unsqueeze(1), leave_out.float().unsqueeze(1))
    sums = (affinity * (1.0 - own_key)) @ hot  # (Q N) @ (N C) -> (Q C)
    counts = hot.sum(dim=0) - own_class  # (Q C)
    present = (counts > 0).sum(dim=1, keepdim=True).clamp_min(1)
    return sums / counts.clamp_min(1.0) * counts.sum(dim=1, keepdim=True) / present


def _search_queries(support: LabelledFeatures) -> Int[Tensor, " Q"]:
    """The rows whose class has another image, thinned evenly to at most MAX_QUERIES."""
    has_company = (support.one_hot @ support.counts) > 1  # (N)
    rows = has_company.nonzero().squeeze(1)
    return rows[:: -(-len(rows) // MAX_QUERIES)] if len(rows) else rows


def _leave_one_out_scores(
    support: LabelledFeatures, queries: Int[Tensor, " Q"], affinity: Float[Tensor, "Q N"]
) -> tuple[Float[Tensor, " alphas"], Float[Tensor, " alphas"]]:
    """Accuracy and cross-entropy of the queries for every α, each left out, every class counting the same."""
    features, hot = support.features[queries], support.one_hot[queries]
    votes = _leave_one_out_votes(affinity, support, queries, torch.ones_like(queries, dtype=torch.bool))
    zero_shot = text_logits(features, support.text, logit_scale=support.logit_scale)
    weights, alphas = class_balanced_weights(hot), votes.new_tensor(ALPHAS).reshape(-1, 1, 1)
    log_probs = (zero_shot + alphas * votes).log_softmax(dim=-1)  # (alphas Q C)
    right = log_probs.argmax(dim=-1) == support.labels[queries]
    return right.float() @ weights, -(log_probs * hot).sum(dim=-1) @ weights


def _train(start: Tip, support: LabelledFeatures, *, steps: int, lr: float) -> dict[str, Tensor]:
    """Keys and the roots of α and β after AdamW with a cosine schedule, as in the paper.

    An image finds its own key at distance 0 and learns nothing from the others, which the paper's random
    crops hide. Here its own key is left out of its vote, unless it is the only one of its class.
    """
    learned = {name: start.tensors[name].clone().requires_grad_() for name in start.rates}
    groups = [
        {"params": [learned[name]], "lr": lr * rate.lr_scale / KEYS_LR_SCALE}
        for name, rate in start.rates.items()
    ]
    optimiser = torch.optim.AdamW(groups, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=max(steps, 1))
    rows = support.used.nonzero().squeeze(1)
    batches = -(-len(rows) // BATCH)
    for step in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(_leave_one_out_loss(learned, support, rows[step % batches :: batches]))
        optimiser.step()
        schedule.step()
    return learned


def _leave_one_out_loss(
    learned: Mapping[str, Tensor], support: LabelledFeatures, queries: Int[Tensor, " Q"]
) -> Float[Tensor, ""]:
    """Class-balanced cross-entropy of the queries, each without its own key unless its class has no other."""
    features, labels = support.features[queries], support.labels[queries]
    affinity = _affinity(features @ learned["keys"].T, learned["root_beta"].square())
    votes = _leave_one_out_votes(affinity, support, queries, support.counts[labels] > 1)
    zero_shot = text_logits(features, support.text, logit_scale=support.logit_scale)
    losses = F.cross_entropy(zero_shot + learned["root_alpha"].square() * votes, labels, reduction="none")
    return losses @ class_balanced_weights(support.one_hot[queries])
