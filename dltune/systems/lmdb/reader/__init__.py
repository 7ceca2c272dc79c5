"""How training data is read, and how it can be read faster.

What training jobs import is here: `Reader`, `Records`, `ReadAhead`, `Options`, `Index`.
"""

from dltune.systems.lmdb.format.index import Index
from dltune.systems.lmdb.reader.ahead import ReadAhead
from dltune.systems.lmdb.reader.options import Options
from dltune.systems.lmdb.reader.reader import Reader, Record
from dltune.systems.lmdb.reader.records import Records

__all__ = ["Index", "Options", "ReadAhead", "Reader", "Record", "Records"]
