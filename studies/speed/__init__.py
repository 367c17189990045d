"""Benchmarks that say what they time and assert the answer they timed. Knows nothing of the command line."""
