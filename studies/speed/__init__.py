"""Benchmarks that say what they time and check the answers they timed: `atlas bench`.

suites       → the table of suites; each runs in a Python process of its own (`run`)
report       → bars, and how they are printed
measure      → fair timings of functions that take turns
engine, partitions, few_shot, few_shot_vit, memory, predict, cache_hit → the suites
vit          → sessions with random weights at the shapes of CLIP's ViTs
composition  → what the suite `engine` composes, and the expected answer
naive        → the naive formulation that it is compared with, in a `separate` process
"""
