"""Shares of a count, and how sure one may be of them. Knows nothing of what was counted."""

from __future__ import annotations

import math

from atlas_engine.errors import EvalError

__all__ = ["wilson"]

Z95 = 1.959964


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson's, which holds at small counts and near 0 and 1).

    >>> tuple(round(bound, 3) for bound in wilson(8, 10))
    (0.49, 0.943)
    """
    if count <= 0 or not 0 <= right <= count:
        raise EvalError(f"cannot bound {right} of {count}. Give a count of at least 1.")
    share, z2 = right / count, Z95**2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    reach = Z95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return max(0.0, middle - reach), min(1.0, middle + reach)
