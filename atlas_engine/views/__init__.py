"""Results made readable: tables and figures. Knows nothing of devices, models or the page."""
