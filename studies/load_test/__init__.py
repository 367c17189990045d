"""Many visitors at once, against a real server of its own, through gradio_client.

    python -m studies.load_test                     20 visitors at a time, then 200 runs; about twelve minutes
    python -m studies.load_test --visitors 3 --runs 10 --json crowd.json

    python -m studies.load_test.attack              attacks on such a server, on loopback; about ten minutes

`server` runs the app in a process of its own, `visitors` do what people do there, `promises` measure what
they may expect of it. `attacks` are what strangers may do, `innocent` who must not notice.
"""
