"""Results made readable: tables and figures. Nothing here knows of devices, models or the page."""
