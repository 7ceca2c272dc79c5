"""Writes LMDB files of any page size and both data versions, for what py-lmdb does not write."""

from __future__ import annotations

import struct

META, BRANCH, LEAF, OVERFLOW = 8, 1, 2, 4
NO_PAGE = 2**64 - 1


class Writer:
    def __init__(self, version: int, page_size: int) -> None:
        self.version, self.page_size = version, page_size
        self.header = 16 if version == 1 else 24
        self.base = 0 if version == 1 else 24
        self.pages: list[bytes] = [b"", b""]
        self.counts = {BRANCH: 0, LEAF: 0, OVERFLOW: 0}

    def page_header(self, flags: int, last: bytes, number: int | None = None) -> bytes:
        number = len(self.pages) if number is None else number
        txn = b"" if self.version == 1 else struct.pack("<Q", 1)
        return struct.pack("<Q", number) + txn + struct.pack("<HH", 0, flags) + last

    def tree_page(self, flags: int, nodes: list[bytes]) -> int:
        lower = self.header - self.base + 2 * len(nodes)
        at = self.page_size - self.base
        pointers, body = b"", b""
        for node in nodes:
            node += bytes(len(node) % 2)
            at -= len(node)
            pointers += struct.pack("<H", at)
            body = node + body
        head = self.page_header(flags, struct.pack("<HH", lower, at)) + pointers
        assert len(head) + len(body) <= self.page_size
        self.pages.append(head + bytes(self.page_size - len(head) - len(body)) + body)
        self.counts[flags] += 1
        return len(self.pages) - 1

    def overflow(self, value: bytes) -> tuple[int, int]:
        first = len(self.pages)
        count = (self.header - 1 + len(value)) // self.page_size + 1
        data = self.page_header(OVERFLOW, struct.pack("<I", count)) + value
        data += bytes(count * self.page_size - len(data))
        for i in range(count):
            self.pages.append(data[i * self.page_size : (i + 1) * self.page_size])
        self.counts[OVERFLOW] += count
        return first, count

    def leaf_node(self, key: bytes, value: bytes) -> bytes:
        room = key if self.version == 1 else key + bytes(len(key) % 2)
        if 8 + len(room) + len(value) <= (self.page_size - self.header) // 2 - 2:
            return struct.pack("<IHH", len(value), 0, len(key)) + room + value
        first, count = self.overflow(value)
        reference = struct.pack("<Q", first)
        if self.version != 1:
            reference += struct.pack("<QQ", 1, count)
        return struct.pack("<IHH", len(value), 1, len(key)) + room + reference

    def level(self, flags: int, nodes: list[tuple[bytes, bytes]]) -> list[tuple[bytes, int]]:
        """Pages filled with (key, node); their first keys and page numbers."""
        found: list[tuple[bytes, int]] = []
        at = 0
        while at < len(nodes):
            first, used = at, self.header
            while at < len(nodes) and used + len(nodes[at][1]) + 3 <= self.page_size:
                used += (len(nodes[at][1]) + 1) // 2 * 2 + 2
                at += 1
            found.append(
                (nodes[first][0], self.tree_page(flags, [node for _, node in nodes[first:at]]))
            )
        return found

    def file(self, records: list[tuple[bytes, bytes]]) -> bytes:
        """The whole file; `records` in order."""
        root, depth = NO_PAGE, 0
        if records:
            found = self.level(LEAF, [(k, self.leaf_node(k, v)) for k, v in records])
            depth = 1
            while len(found) > 1:
                found = self.level(
                    BRANCH,
                    [(k, struct.pack("<IHH", page, 0, len(k)) + k) for k, page in found],
                )
                depth += 1
            root = found[0][1]
        empty = struct.pack("<IHHQQQQQ", self.page_size, 0, 0, 0, 0, 0, 0, NO_PAGE)
        counts = [self.counts[kind] for kind in (BRANCH, LEAF, OVERFLOW)]
        main = struct.pack("<IHHQQQQQ", 0, 0, depth, *counts, len(records), root)
        nothing = struct.pack("<IHHQQQQQ", 0, 0, 0, 0, 0, 0, 0, NO_PAGE)
        for number, tree, txn in ((0, nothing, 0), (1, main, 1)):
            last = len(self.pages) - 1 if txn else 1
            meta = struct.pack("<IIQQ", 0xBEEFC0DE, self.version, 0, 1 << 30)
            meta += empty + tree + struct.pack("<QQ", last, txn)
            page = self.page_header(META, bytes(4), number) + meta
            self.pages[number] = page + bytes(self.page_size - len(page))
        return b"".join(self.pages)
