"""More replicas than one: the page's questions and lessons answered by several processes, on Ray Serve.

    atlas serve --replicas 2                              # the replicas, and their one address
    ATLAS_BACKEND=ray python -m app                       # the page, as a client of them

`application` is what Ray runs, and the only module that imports it; `work` is what a replica does, `messages`
what is said to it and by it, `results` where recipes lie, `trust` who may ask. `client` asks over HTTP, and
`engine` is the engine of a page that has `client` compute. Nothing here knows Gradio.
"""
