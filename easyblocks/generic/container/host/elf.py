##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Read what the loader reads of a program or library: the libraries that it needs, where to look for them, and which
versions and symbols of them it needs and has itself.

Only 64-bit files with the least significant byte first, as on x86-64 and AArch64. Programs are read by their program
headers, which stripped files have, too. Doesn't import EasyBuild, so that commands can use it too.
"""
import mmap
import struct
from typing import Dict, Iterator, List, Optional, Set, Tuple, Union

# elf(5): kinds of segments, and entries of the dynamic section
LOAD, DYNAMIC, INTERPRETER, NOTE = 1, 2, 3, 4
NEEDED, HASH, STRTAB, SYMTAB, SONAME, RPATH, RUNPATH = 1, 4, 5, 6, 14, 15, 29
GNU_HASH, VERDEF, VERDEFNUM, VERNEED, VERNEEDNUM = 0x6ffffef5, 0x6ffffffc, 0x6ffffffd, 0x6ffffffe, 0x6fffffff
BUILD_ID = 3
# flags of versions: the name of the file itself, a version that may be missing; bindings of symbols
BASE_VERSION, WEAK_VERSION = 1, 2
GLOBAL, WEAK, UNIQUE = 1, 2, 10

HEADER = struct.Struct('<16sHHIQQQIHHH')
SEGMENT = struct.Struct('<IIQQQQQQ')
ENTRY = struct.Struct('<QQ')
NOTE_HEADER = struct.Struct('<III')
NEEDED_FILE, NEEDED_VERSION = struct.Struct('<HHIII'), struct.Struct('<IHHII')
DEFINED_VERSION, TWO_NUMBERS, FOUR_NUMBERS = struct.Struct('<HHHHIII'), struct.Struct('<II'), struct.Struct('<IIII')
SYMBOL = struct.Struct('<IBBHQQ')
# files of glibc before 2.32 may have a part in an old format in front of this
CACHE_MAGIC = b'glibc-ld.so.cache1.1'
CACHE_ENTRY = struct.Struct('<iIIIQ')
CACHE_HEADER = 48
# 32-bit libraries of x86 have none of these bits
ARCHITECTURE = 0x0f00


class NotElfError(ValueError):
    """A file is no dynamic program or library of this kind."""


# What reading a damaged file raises.
DAMAGE = (ValueError, LookupError, struct.error)


class Elf:
    """What the loader reads of a program or library."""

    def __init__(self, data: Union[bytes, mmap.mmap]) -> None:
        """Read the start of a file; raise NotElfError, struct.error or LookupError if it isn't one."""
        if data[:6] != b'\x7fELF\x02\x01':
            raise NotElfError("no 64-bit ELF file")
        self.data = data
        _, _, self.machine, _, _, table, _, _, _, size, number = HEADER.unpack_from(data)
        # kind, place in the file, address, size in the file
        self.segments: List[Tuple[int, int, int, int]] = []
        for index in range(number):
            kind, _, offset, address, _, length, _, _ = SEGMENT.unpack_from(data, table + index * size)
            self.segments.append((kind, offset, address, length))
        entries = list(self.dynamic_entries())
        if not entries:
            raise NotElfError("linked statically")
        self.tags = dict(entries)
        self.strings = self.place(self.tags[STRTAB])
        texts: Dict[int, List[str]] = {NEEDED: [], SONAME: [], RPATH: [], RUNPATH: []}
        for tag, value in entries:
            if tag in texts:
                texts[tag].append(self.text(self.strings + value))
        self.needed = texts[NEEDED]
        self.soname = texts[SONAME][0] if texts[SONAME] else None
        self.rpath, self.runpath = (
            [folder for text in texts[tag] for folder in text.split(':') if folder] for tag in (RPATH, RUNPATH))
        # the loader that the kernel starts it with; libraries have none
        self.interpreter: Optional[str] = next((self.text(offset) for kind, offset, _, _ in self.segments
                                                if kind == INTERPRETER), None)

    @classmethod
    def read(cls, path: str) -> 'Elf':
        """Read a file; raise NotElfError if it is none, OSError if it can't be read."""
        with open(path, 'rb') as file:
            try:
                return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except DAMAGE as err:
                raise NotElfError("%s: %s" % (path, err))

    def dynamic_entries(self) -> Iterator[Tuple[int, int]]:
        """Yield tag and value of each entry of the dynamic section."""
        for kind, offset, _, length in self.segments:
            for place in range(offset, offset + length, ENTRY.size) if kind == DYNAMIC else ():
                tag, value = ENTRY.unpack_from(self.data, place)
                if tag == 0:
                    return
                yield tag, value

    def place(self, address: int) -> int:
        """Return where in the file the loader takes an address from."""
        for kind, offset, start, length in self.segments:
            if kind == LOAD and start <= address < start + length:
                return address - start + offset
        raise NotElfError("damaged: address %#x is not in the file" % address)

    def text(self, start: int) -> str:
        """Return the text at a place in the file."""
        end = self.data.find(b'\0', start)
        if end < 0:
            raise NotElfError("damaged: a text has no end")
        return bytes(self.data[start:end]).decode('utf-8', 'surrogateescape')

    def required(self) -> Dict[str, Set[str]]:
        """Return the versions that the file needs of each library; without those that may be missing."""
        found: Dict[str, Set[str]] = {}
        place = self.place(self.tags[VERNEED]) if VERNEED in self.tags else 0
        while place:
            _, _, name, first, after = NEEDED_FILE.unpack_from(self.data, place)
            version_place = place + first
            while version_place:
                _, flags, _, version, next_version = NEEDED_VERSION.unpack_from(self.data, version_place)
                if not flags & WEAK_VERSION:
                    found.setdefault(self.text(self.strings + name), set()).add(self.text(self.strings + version))
                version_place = version_place + next_version if next_version else 0
            place = place + after if after else 0
        return found

    def offered(self) -> Set[str]:
        """Return the versions that the library has, without its own name."""
        found = set()
        place = self.place(self.tags[VERDEF]) if VERDEF in self.tags else 0
        while place:
            _, flags, _, _, _, first, after = DEFINED_VERSION.unpack_from(self.data, place)
            if not flags & BASE_VERSION:
                found.add(self.text(self.strings + TWO_NUMBERS.unpack_from(self.data, place + first)[0]))
            place = place + after if after else 0
        return found

    def symbols(self) -> Tuple[Set[str], Set[str]]:
        """Return the names that the file has for others, and those that it needs of others."""
        own, others = set(), set()
        start = self.place(self.tags[SYMTAB])
        for index in range(1, self.number_of_symbols()):
            name, kind, _, section, _, _ = SYMBOL.unpack_from(self.data, start + index * SYMBOL.size)
            if name and section and kind >> 4 in (GLOBAL, WEAK, UNIQUE):
                own.add(self.text(self.strings + name))
            elif name and not section and kind >> 4 == GLOBAL:
                others.add(self.text(self.strings + name))
        return own, others

    def number_of_symbols(self) -> int:
        """Return how many symbols there are, which only the tables for finding them say."""
        if HASH in self.tags:
            return int(TWO_NUMBERS.unpack_from(self.data, self.place(self.tags[HASH]))[1])
        if GNU_HASH not in self.tags:
            return 0
        table = self.place(self.tags[GNU_HASH])
        buckets, first, bloom, _ = FOUR_NUMBERS.unpack_from(self.data, table)
        place = table + FOUR_NUMBERS.size + 8 * bloom
        last = max(struct.unpack_from('<%dI' % buckets, self.data, place), default=0)
        if last < first:
            return int(first)
        # the last one of a chain is odd
        while not struct.unpack_from('<I', self.data, place + 4 * (buckets + last - first))[0] & 1:
            last += 1
        return int(last) + 1

    def build_id(self) -> str:
        """Return what is new with each build of the file, '' if it has no build ID."""
        for kind, start, _, length in self.segments:
            place = start
            while kind == NOTE and place + NOTE_HEADER.size <= start + length:
                name, size, what = NOTE_HEADER.unpack_from(self.data, place)
                place += NOTE_HEADER.size
                content = place + padded(name)
                if what == BUILD_ID and self.data[place:place + 4] == b'GNU\0':
                    return bytes(self.data[content:content + size]).hex()
                place = content + padded(size)
        return ''


def padded(size: int) -> int:
    """Return the size of a part of a note, with what fills it up."""
    return size + 3 & ~3


def cached_libraries(path: str = '/etc/ld.so.cache') -> Dict[str, List[str]]:
    """Return the paths of libraries by name from the cache of the loader of this machine; none if it can't be read."""
    try:
        with open(path, 'rb') as file:
            return libraries_in(file.read())
    except OSError:
        return {}


def libraries_in(data: bytes) -> Dict[str, List[str]]:
    """
    Return the paths of libraries by name in a cache of the loader, in its order; none if it isn't one.

    Variants for newer processors (glibc-hwcaps) are left out.
    """
    found: Dict[str, List[str]] = {}
    try:
        start = data.find(CACHE_MAGIC)
        if start < 0:
            return {}
        number, = struct.unpack_from('<I', data, start + len(CACHE_MAGIC))
        for index in range(number):
            entry = CACHE_ENTRY.unpack_from(data, start + CACHE_HEADER + index * CACHE_ENTRY.size)
            flags, name, library, _, capability = entry
            if flags & ARCHITECTURE and not capability:
                key, value = (data[start + one:data.index(b'\0', start + one)].decode('utf-8', 'surrogateescape')
                              for one in (name, library))
                found.setdefault(key, []).append(value)
    except (ValueError, struct.error):
        return {}
    return found
