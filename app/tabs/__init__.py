"""One module a tab: its components and their wiring. Know nothing of torch."""
