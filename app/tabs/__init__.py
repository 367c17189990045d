"""One module a tab: its components and their wiring. They know nothing of torch."""
