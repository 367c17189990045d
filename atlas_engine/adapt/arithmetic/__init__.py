"""Task arithmetic (aTLAS, section 4): forget a set of classes, or one model for several sets."""
