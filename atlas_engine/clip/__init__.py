"""Image and text towers: the one place that knows open_clip, timm and transformers."""
