"""Weights out of a bank and coefficients, and what a gradient on the weights says of the coefficients."""

from __future__ import annotations
