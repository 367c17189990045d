"""Checkpoints of other projects as weights of an open_clip image tower.

`transformers` CLIP models, open_clip state dicts and whole pickled modules can be read; nothing that a file
holds is run. From name to weights: `sources` → `tower` (→ `checkpoint` → `torchfile` → `pickles`), with
`lora` for adapters, `sidecar` for what is written beside a checkpoint and `public` for the public banks.
"""
