##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Read what the loader reads of a program or library: the libraries that it needs, and where to look for them.

Only 64-bit files with the least significant byte first, as on x86-64 and AArch64. Programs are read by their program
headers, which stripped files have, too. Doesn't import EasyBuild, so that commands can use it too.
"""
import mmap
import struct
from typing import Dict, Iterator, List, Optional, Tuple, Union

# elf(5): kinds of segments, and entries of the dynamic section
LOAD, DYNAMIC, INTERPRETER, NOTE = 1, 2, 3, 4
NEEDED, STRTAB, SONAME, RPATH, RUNPATH = 1, 5, 14, 15, 29
BUILD_ID = 3

HEADER = struct.Struct('<16sHHIQQQIHHH')
SEGMENT = struct.Struct('<IIQQQQQQ')
ENTRY = struct.Struct('<QQ')
NOTE_HEADER = struct.Struct('<III')
# files of glibc before 2.32 may have a part in an old format in front of this
CACHE_MAGIC = b'glibc-ld.so.cache1.1'
CACHE_ENTRY = struct.Struct('<iIIIQ')
CACHE_HEADER = 48
# 32-bit libraries of x86 have none of these bits
ARCHITECTURE = 0x0f00


class NotElfError(ValueError):
    """A file is no dynamic program or library of this kind."""


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
        strings = self.place(dict(entries)[STRTAB])
        texts: Dict[int, List[str]] = {NEEDED: [], SONAME: [], RPATH: [], RUNPATH: []}
        for tag, value in entries:
            if tag in texts:
                texts[tag].append(self.text(strings + value))
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
            except (ValueError, LookupError, struct.error) as err:
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
    """
    Return the paths of libraries by name from the cache of the loader, in its order; none if it can't be read.

    Variants for newer processors (glibc-hwcaps) are left out.
    """
    found: Dict[str, List[str]] = {}
    try:
        with open(path, 'rb') as file:
            data = file.read()
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
    except (OSError, ValueError, struct.error):
        return {}
    return found
