"""A recipe's model in the formats of other programs: ONNX, a web page, open_clip and `transformers`.

The modules:

    formats              the table of formats, and a folder that appears whole or not at all
    classifier           what every format is made from: the network, the classes, the temperature
    onnx_graph           ONNX nodes: the resize of `data.preprocess`, computed in the graph
    onnx_model           one ONNX file: an image of any size in, probabilities out
    onnx_int8            the same file with weights and products in eight bits
    web_page             one HTML file that runs the ONNX file in a browser
    clip_folders         folders for open_clip and for `transformers`

`engine.export` and `atlas export` are the ways in. Nothing here trains or reads images.
"""
