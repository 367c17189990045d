"""A head in closed form, which gives every leave-one-out answer and influence without fitting again.

    head = Ridge.fitted(support)
    head.scores(features)                    # (B D) -> (B C): about 1 for the class of an image, 0 for others
    head.held_out_scores(groups)             # (N C): each image by the head without its group
    head.influences()                        # (N): above 0 where the others are answered better without it

It is ridge regression on what zero-shot leaves of the one-hot labels, with P₀ = softmax(zero-shot logits):

    scores(f) = P₀(f) + k(f, F) α,    α = A (Y − P₀),    A = (K + μ I)⁻¹                # K (N N), α (N C)

The kernel k is the inner product of centred features, divided by its mean over the images, plus 1 for a bias.
Without the images g, the residuals of g are (A_gg)⁻¹ α_g (Cook and Weisberg, 1982): one inverse serves all.
Nothing that ships answers with this head: it is for questions about a support.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from atlas_engine.errors import SupportError
from atlas_engine.heads.base import LabelledFeatures, text_logits

__all__ = ["Ridge"]

STRENGTH = 0.3
"""μ, relative to the mean of k(f, f): 0.1 … 1 find wrong labels equally well on data sets of the bank."""
MAX_IMAGES = 4000  # N × N numbers are kept
PAIRS_AT_ONCE = 2**22  # of images and classes, while influences are computed


@dataclass(frozen=True, eq=False)
class Ridge:
    """Ridge regression on the used rows of a support, in float64."""

    support: LabelledFeatures
    centre: Float[Tensor, " D"]
    kernel_scale: float
    inverse: Float[Tensor, "N N"]  # A
    dual: Float[Tensor, "N C"]  # α
    from_text: bool

    @classmethod
    def fit(cls, support: LabelledFeatures, *, from_text: bool = True) -> Ridge:
        """The head of the used rows. Without `from_text`, P₀ is 1/C: for class embeddings made of labels."""
        used = support.used
        own = LabelledFeatures(
            support.features[used], support.labels[used], support.text, logit_scale=support.logit_scale
        )
        count = len(own.labels)
        if count > MAX_IMAGES:
            raise SupportError(
                f"got {count} labelled images, but at most {MAX_IMAGES} can be checked together. Leave some "
                "classes out, and check those by themselves."
            )
        features = own.features.double()
        centre = features.mean(dim=0)
        kernel = (features - centre) @ (features - centre).T  # (N N)
        kernel_scale = float(kernel.diagonal().mean().clamp_min(1e-12))
        eye = torch.eye(count, dtype=kernel.dtype, device=kernel.device)
        inverse = torch.linalg.inv(kernel / kernel_scale + 1.0 + STRENGTH * eye)
        dual = inverse @ (own.one_hot.double() - _start(own, own.features, from_text=from_text))
        return cls(own, centre, kernel_scale, inverse, dual, from_text)

    def scores(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B C"]:
        """P₀ + k α."""
        centred = features.double() - self.centre
        kernel = centred @ (self.support.features.double() - self.centre).T / self.kernel_scale + 1.0
        return (_start(self.support, features, from_text=self.from_text) + kernel @ self.dual).float()

    def held_out_scores(self, groups: Int[Tensor, " N"]) -> Float[Tensor, "N C"]:
        """Scores of each image by the head that was fitted without any image of its group."""
        residuals = self.dual / self.inverse.diagonal().unsqueeze(1)
        shared, counts = torch.unique(groups, return_counts=True)
        for group in shared[counts > 1]:
            rows = (groups == group).nonzero().squeeze(1)
            residuals[rows] = torch.linalg.solve(self.inverse[rows][:, rows], self.dual[rows])
        return (self.support.one_hot.double() - residuals).float()

    def influences(self) -> Float[Tensor, " N"]:
        """How much the squared leave-one-out errors of all others fall, summed, if an image is left out too.

        Without i and j, the residual of i is (A_jj α_i − A_ij α_j) / (A_ii A_jj − A_ij²).
        """
        inverse, dual = self.inverse, self.dual
        diagonal = inverse.diagonal()
        with_all = (dual / diagonal.unsqueeze(1)).square().sum(dim=1)  # (N)
        falls = torch.zeros_like(diagonal)
        size = max(1, PAIRS_AT_ONCE // dual.numel())
        for columns in torch.split(torch.arange(len(dual), device=dual.device), size):
            pair = inverse[:, columns]  # (N b): of every i with the b images j
            determinant = diagonal.unsqueeze(1) * diagonal[columns] - pair.square()
            residuals = (
                diagonal[columns].reshape(1, -1, 1) * dual.unsqueeze(1) - pair.unsqueeze(2) * dual[columns]
            )  # (N b C)
            without = residuals.square().sum(dim=2) / determinant.square()  # (N b)
            fall = with_all.unsqueeze(1) - without
            fall[columns, torch.arange(len(columns), device=dual.device)] = 0.0  # not of j itself
            falls[columns] = fall.sum(dim=0)
        return falls.float()


def _start(
    support: LabelledFeatures, features: Float[Tensor, "B D"], *, from_text: bool
) -> Float[Tensor, "B C"]:
    """P₀ in float64."""
    logits = text_logits(features, support.text, logit_scale=support.logit_scale)
    return (logits if from_text else torch.zeros_like(logits)).double().softmax(dim=1)
