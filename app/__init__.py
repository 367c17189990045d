"""The page that a visitor sees, on Gradio. Uses the engine's public names and its views, nothing deeper.

    python -m app                      serve on 127.0.0.1:7860

How a request flows: `tabs/` hold the components and wire them, `handlers/` are plain generators that know no
Gradio, `cards` and `alerts` turn what they yield into HTML, `text` holds every word.
"""
