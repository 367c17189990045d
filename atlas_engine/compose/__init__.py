"""Weights θ(λ) from a bank and coefficients λ, and ∂L/∂λ from ∂L/∂θ. Nothing here knows data or losses."""

from __future__ import annotations
