"""A file for each kind of document that the page can show, named as in its schema.

`dltune.bench/2` is shown by `bench.py`, `dltune.io-report/1` would be by `io_report.py`: each has
`load` and `show` (`section.Kind`).
"""
