"""A file for each kind of core's documents that the page can show, named as in its schema.

`dltune.bench/1` is shown by `bench.py`. Each has a function `view`, which an extension registers
(`extensions.DocumentKind`).
"""
