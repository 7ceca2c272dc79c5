"""An LMDB parser as plain as can be: bytes in, records out. The oracle of the native one.

It follows what it finds and checks nothing; a file that is not sound makes it raise something.
"""

from __future__ import annotations

import struct

Record = tuple[bytes, int, int]  # key, offset and size of the value
BIG, SUB, DUP = 1, 2, 4
LEAF2 = 0x20


class File:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.header = 16 if data[16:20] == b"\xde\xc0\xef\xbe" else 24
        self.base = 0 if self.header == 16 else 24
        self.page_size = self.u(4, self.header + 24)
        metas = [self.header, self.page_size + self.header]
        self.meta = max(metas, key=lambda at: self.u(8, at + 128))
        self.txn = self.u(8, self.meta + 128)

    def u(self, size: int, at: int) -> int:
        assert at + size <= len(self.data)
        return int.from_bytes(self.data[at : at + size], "little")

    def databases(self) -> dict[bytes | None, list[Record]]:
        records, named = self.tree(self.meta + 24 + 48)
        found: dict[bytes | None, list[Record]] = {None: records}
        for name, at in named:
            if self.header == 24:
                name = name.removesuffix(b"\0")
            found[name], _ = self.tree(at)
        return found

    def tree(self, at: int) -> tuple[list[Record], list[tuple[bytes, int]]]:
        """The records under the tree's record at `at`, and the named databases in it."""
        root, depth = self.u(8, at + 40), self.u(2, at + 6)
        assert depth <= 32
        records: list[Record] = []
        named: list[tuple[bytes, int]] = []
        if root != 2**64 - 1:
            for page in self.leaves(root, depth):
                self.leaf(page, records, named)
        return records, named

    def leaves(self, page: int, depth: int) -> list[int]:
        """Offsets of the leaf pages under page number `page`."""
        assert self.u(8, page * self.page_size) == page
        if depth == 1:
            return [page * self.page_size]
        found = []
        for node in self.nodes(page * self.page_size):
            found += self.leaves(self.u(6, node), depth - 1)
        return found

    def nodes(self, page: int) -> list[int]:
        count = (self.u(2, page + self.header - 4) - (self.header - self.base)) // 2
        return [page + self.base + self.u(2, page + self.header + 2 * i) for i in range(count)]

    def leaf(self, page: int, records: list[Record], named: list[tuple[bytes, int]]) -> None:
        for node in self.nodes(page):
            size, flags, key_size = self.u(4, node), self.u(2, node + 4), self.u(2, node + 6)
            key = self.data[node + 8 : node + 8 + key_size]
            at = node + 8 + (key_size if self.header == 16 else (key_size + 1) // 2 * 2)
            if flags == 0:
                records.append((key, at, size))
            elif flags == BIG:
                records.append((key, self.u(8, at) * self.page_size + self.header, size))
            elif flags == SUB:
                named.append((key, at))
            elif flags == DUP:
                self.duplicates(key, at, records)
            else:
                assert flags == DUP | SUB
                for leaf in self.leaves(self.u(8, at + 40), self.u(2, at + 6)):
                    self.duplicates(key, leaf, records)

    def duplicates(self, key: bytes, page: int, records: list[Record]) -> None:
        if self.u(2, page + self.header - 6) & LEAF2:
            size = self.u(2, page + self.header - 8)
            count = (self.u(2, page + self.header - 4) - (self.header - self.base)) // 2
            for i in range(count):
                records.append((key, page + self.header + i * size, size))
            return
        for node in self.nodes(page):
            records.append((key, node + 8, self.u(2, node + 6)))


def parse(data: bytes) -> dict[bytes | None, list[Record]]:
    """Every database's records in order, by the database's name (None: the main one)."""
    return File(data).databases()


def headers(data: bytes) -> list[range]:
    """Where the fields lie by which a reader finds its way: everything but keys and values.

    The meta pages, and of each page of the newest snapshot its header, its pointers, its nodes'
    headers, references to overflow pages, and the records of trees.
    """
    file = File(data)
    found = [range(0, file.header + 136), range(file.page_size, file.page_size + file.header + 136)]

    def page(number: int, depth: int) -> None:
        at = number * file.page_size
        if file.u(2, at + file.header - 6) & LEAF2:
            found.append(range(at, at + file.header))
            return
        nodes = file.nodes(at)
        found.append(range(at, at + file.header + 2 * len(nodes)))
        for node in nodes:
            found.append(range(node, node + 8))
            if depth > 1:
                page(file.u(6, node), depth - 1)
                continue
            flags, key_size = file.u(2, node + 4), file.u(2, node + 6)
            data_at = node + 8 + (key_size if file.header == 16 else (key_size + 1) // 2 * 2)
            if flags & BIG:
                found.append(range(data_at, data_at + 8))
            elif flags & SUB:
                found.append(range(data_at, data_at + 48))
                if file.u(8, data_at + 40) != 2**64 - 1:
                    page(file.u(8, data_at + 40), file.u(2, data_at + 6))
            elif flags & DUP:
                found.append(range(data_at, data_at + file.header))

    for record in (file.meta + 24, file.meta + 72):
        if file.u(8, record + 40) != 2**64 - 1:
            page(file.u(8, record + 40), file.u(2, record + 6))
    return found


def with_number(data: bytes, at: int, size: int, value: int) -> bytes:
    """`data` with another number at `at`."""
    return data[:at] + struct.pack("<Q", value)[:size] + data[at + size :]
