"""Losses over a function from images to logits. They know nothing of banks, coefficients or models."""

from __future__ import annotations
