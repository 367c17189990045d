"""The two products of stored task vectors (`panels`), where torch alone would be slow.

    cpu            both products in machine code, in as many threads as torch uses
    numba_loops    the loops that numba compiles for it
    half           float16 through two of torch's own kernels, where there is no numba
    gpu            both products on a GPU, after a self-check against torch
    triton_loops   the loops that Triton compiles for it

Nothing here knows what a bank is: tensors go in, tensors come out.
"""

from __future__ import annotations
