"""Tip-Adapter: the labelled features as a cache that votes beside the class names. Knows nothing of towers.

    logits = logit_scale · f tᵀ + α · exp(−β (1 − f keysᵀ)) · votes

(Zhang et al., ECCV 2022.) ``votes`` is one-hot there, so a class with more keys shouts louder. Here key i of
class c votes with N / (C · n_c), which is 1 where all classes have the same count: a class is not likelier
because somebody took more photos of it.

The paper searches α and β on a validation set. Here they are searched by leaving each image out of its own
cache, which is exact and costs no more than one pass: dropping a key takes one number out of a sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.errors import RecipeError
from atlas_engine.heads.base import (
    UNUSED,
    LabelledFeatures,
    TensorRate,
    checked_tensors,
    class_balanced_weights,
    one_hot,
    text_logits,
)

__all__ = ["Tip", "left_out_logits"]

JOINT_ALPHA, JOINT_BETA = 2.0, 1.0  # where the paper on aTLAS starts the joint form
ALPHAS = (0.0, *(2.0**power for power in range(-3, 7)))  # 0, then 1/8 to 64
BETAS = tuple(2.0**power for power in range(-1, 6))  # 1/2 to 32
MAX_QUERIES = 512  # images that are left out in the search; more say no more
STEPS, LR, BATCH = 40, 1e-3, 256  # learning rate and batch are the paper's


@dataclass(frozen=True, eq=False)
class Tip:
    """A cache of keys. α = root_alpha² and β = root_beta² cannot turn negative, and α may be exactly 0."""

    keys: Tensor  # (N D)
    labels: Tensor  # (N), class numbers; an UNUSED key has no vote
    root_alpha: Tensor  # (1)
    root_beta: Tensor  # (1)
    text: Tensor  # (C D)
    logit_scale: float

    @classmethod
    def start(
        cls, evidence: LabelledFeatures, *, alpha: float = JOINT_ALPHA, beta: float = JOINT_BETA
    ) -> Tip:
        """The cache at given α and β, before any search or training."""
        roots = torch.tensor([alpha, beta], device=evidence.features.device).sqrt()
        return cls(
            evidence.features, evidence.labels, roots[:1], roots[1:], evidence.text, evidence.logit_scale
        )

    @classmethod
    def searched(cls, evidence: LabelledFeatures) -> Tip:
        """Tip-Adapter without training: α and β with the most images right when each is left out.

        Among equals the least cross-entropy wins; alone it would pick small votes on a model whose logit
        scale is small already, for it minds how sure the logits are. An image that is alone in its class says
        nothing about a cache of its own kind: where all are, the start's α and β stay.
        """
        queries = _queries(evidence)
        if not len(queries):
            return cls.start(evidence)
        cosines = evidence.features[queries] @ evidence.features.T  # (Q N)
        grid = [_trial(evidence, queries, _affinity(cosines, beta)) for beta in BETAS]
        right, losses = (torch.stack(column) for column in zip(*grid, strict=True))  # each (betas alphas)
        wanted = losses.masked_fill(right < right.max(), torch.inf)
        beta, alpha = divmod(int(wanted.argmin()), len(ALPHAS))
        return cls.start(evidence, alpha=ALPHAS[alpha], beta=BETAS[beta])

    @classmethod
    def fitted(cls, evidence: LabelledFeatures, *, steps: int = STEPS, lr: float = LR) -> Tip:
        """Tip-Adapter-F: keys, α and β learned, from where the search ended."""
        found = cls.searched(evidence)
        with torch.inference_mode(False), torch.enable_grad():
            return found.at(_trained(found, evidence, steps=steps, lr=lr))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], text: Tensor, *, logit_scale: float) -> Tip:
        """Rebuild it from what ``tensors`` gave."""
        count = len(tensors["labels"]) if "labels" in tensors and tensors["labels"].ndim == 1 else 0
        shapes: dict[str, tuple[int, ...]] = {"keys": (count, text.shape[1]), "labels": (count,)}
        own = checked_tensors(tensors, shapes | {"root_alpha": (1,), "root_beta": (1,)})
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
        """Keys, their classes as numbers in float32, and the roots of α and β."""
        return {
            "keys": self.keys,
            "labels": self.labels.float(),
            "root_alpha": self.root_alpha,
            "root_beta": self.root_beta,
        }

    @property
    def rates(self) -> Mapping[str, TensorRate]:
        """Keys as slowly as the paper's 0.001 at the loop's 0.1, for they are entries of unit vectors."""
        return {"keys": TensorRate(0.01), "root_alpha": TensorRate(0.1), "root_beta": TensorRate(0.1)}

    def logits(self, features: Tensor, learned: Mapping[str, Tensor] | None = None) -> Tensor:
        """(B D) -> (B C)."""
        now = {**self.tensors, **(learned or {})}
        affinity = _affinity(features.float() @ now["keys"].T, now["root_beta"].square())  # (B N)
        zero_shot = text_logits(features, self.text, logit_scale=self.logit_scale)
        return zero_shot + now["root_alpha"].square() * (affinity @ _votes(self.labels, len(self.text)))

    def at(self, learned: Mapping[str, Tensor]) -> Tip:
        """The same cache with other keys, α or β."""
        now = {name: value.detach() for name, value in {**self.tensors, **learned}.items()}
        return dataclasses.replace(
            self, keys=now["keys"], root_alpha=now["root_alpha"], root_beta=now["root_beta"]
        )


def left_out_logits(evidence: LabelledFeatures, *, alpha: float, beta: float) -> Tensor:
    """(N C): the logits of each used image under the cache of all others, without building it anew.

    With its key gone, a class of n images has n − 1 and one that had only this image has no vote at all.
    """
    every = torch.arange(len(evidence.labels), device=evidence.labels.device)
    affinity = _affinity(evidence.features @ evidence.features.T, beta)  # (N N)
    votes = _votes_left_out(affinity, evidence, every, evidence.used)
    return text_logits(evidence.features, evidence.text, logit_scale=evidence.logit_scale) + alpha * votes


def _affinity(cosines: Tensor, beta: Tensor | float) -> Tensor:
    return torch.exp(beta * (cosines - 1.0))


def _votes(labels: Tensor, classes: int) -> Tensor:
    """(N C): N / (C n_c) at each used key's class, with C counting the classes that have keys."""
    hot = one_hot(labels, classes)
    return hot * (class_balanced_weights(hot) * hot.sum()).unsqueeze(1)


def _votes_left_out(affinity: Tensor, evidence: LabelledFeatures, queries: Tensor, leave: Tensor) -> Tensor:
    """(Q N) -> (Q C): the votes, without each query's own key where ``leave`` (Q) says so."""
    hot = evidence.one_hot
    mine = hot[queries] * leave.unsqueeze(1)  # (Q C)
    own = torch.zeros_like(affinity).scatter(1, queries.unsqueeze(1), leave.float().unsqueeze(1))
    sums = (affinity * (1.0 - own)) @ hot  # (Q N) @ (N C) -> (Q C)
    counts = hot.sum(dim=0) - mine  # (Q C)
    present = (counts > 0).sum(dim=1, keepdim=True).clamp_min(1)
    return sums / counts.clamp_min(1.0) * counts.sum(dim=1, keepdim=True) / present


def _queries(evidence: LabelledFeatures) -> Tensor:
    """Positions of the images that are not alone in their class, thinned evenly where there are many."""
    company = (evidence.one_hot @ evidence.counts) > 1  # (N)
    rows = company.nonzero().squeeze(1)
    return rows[:: -(-len(rows) // MAX_QUERIES)] if len(rows) else rows


def _trial(evidence: LabelledFeatures, queries: Tensor, affinity: Tensor) -> tuple[Tensor, Tensor]:
    """(alphas), (alphas): share of queries right and cross-entropy, each left out, classes weighing alike."""
    features, hot = evidence.features[queries], evidence.one_hot[queries]
    votes = _votes_left_out(affinity, evidence, queries, torch.ones_like(queries, dtype=torch.bool))
    zero_shot = text_logits(features, evidence.text, logit_scale=evidence.logit_scale)
    weights, alphas = class_balanced_weights(hot), votes.new_tensor(ALPHAS).reshape(-1, 1, 1)
    scores = (zero_shot + alphas * votes).log_softmax(dim=-1)  # (alphas Q C)
    right = scores.argmax(dim=-1) == evidence.labels[queries]
    return right.float() @ weights, -(scores * hot).sum(dim=-1) @ weights


def _trained(start: Tip, evidence: LabelledFeatures, *, steps: int, lr: float) -> dict[str, Tensor]:
    """Keys, α and β after AdamW with a cosine, as the paper has it.

    An image finds its own key at distance 0 and learns nothing of the others, which the paper's random crops
    hide; here the own key is left out of its vote, unless it is the only one of its class.
    """
    learned = {name: start.tensors[name].clone().requires_grad_() for name in start.rates}
    groups = [{"params": [learned[n]], "lr": lr * rate.lr_scale / 0.01} for n, rate in start.rates.items()]
    optimiser = torch.optim.AdamW(groups, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=max(steps, 1))
    rows = evidence.used.nonzero().squeeze(1)
    parts = -(-len(rows) // BATCH)
    for step in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(_left_out_loss(learned, evidence, rows[step % parts :: parts]))
        optimiser.step()
        schedule.step()
    return learned


def _left_out_loss(learned: Mapping[str, Tensor], evidence: LabelledFeatures, queries: Tensor) -> Tensor:
    """Balanced cross-entropy of the queries, each without its own key unless it is alone in its class."""
    features, labels = evidence.features[queries], evidence.labels[queries]
    affinity = _affinity(features @ learned["keys"].T, learned["root_beta"].square())
    votes = _votes_left_out(affinity, evidence, queries, evidence.counts[labels] > 1)
    zero_shot = text_logits(features, evidence.text, logit_scale=evidence.logit_scale)
    losses = F.cross_entropy(zero_shot + learned["root_alpha"].square() * votes, labels, reduction="none")
    return losses @ class_balanced_weights(evidence.one_hot[queries])
