"""How training data is read, and how it can be read faster.

What training jobs import is here: `Reader`, `Records`, `ReadAhead`, `Options`, `Index`.
"""

from dltune.io.lmdb.index import Index
from dltune.io.reader.ahead import ReadAhead
from dltune.io.reader.options import Options
from dltune.io.reader.reader import Reader, Record
from dltune.io.reader.records import Records

__all__ = ["Index", "Options", "ReadAhead", "Reader", "Record", "Records"]
