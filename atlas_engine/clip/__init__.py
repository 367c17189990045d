"""CLIP models: image and text towers, class embeddings, and weights in other projects' formats.

`open_clip`, `timm` and `transformers` are imported in this package and nowhere else in the engine. Nothing
here knows of task vector banks, coefficients or images on disk.
"""
