"""Hearth: bake a language model once, ahead of time, and serve it on the device.

The packages in it are links to the folders of the checkout. The command line, `cli`, imports the
baker and the server when a command needs them.
"""
