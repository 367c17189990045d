"""The page that a visitor sees, on Gradio. It uses the engine's public names and its views, nothing deeper.

    python -m app                      serve on 127.0.0.1:7860

How a request flows: `connections` take it, `edge` lets it in, `lane` decides when it runs; a tab (`tabs/`) or
an endpoint (`api`) reads what was given and calls a handler (`handlers/`), a plain generator of dataclasses
that knows no Gradio; `views` and `templates/` make HTML of them; the tab says which component shows it.
`text/` holds every word; `session`, `visitors` and `storage` what the server holds for visitors; `serving`
puts the server together and stops it.
"""
