#!/usr/bin/env python3
"""Writes model/unicode_ranges.inc: the code points of Unicode's categories L and N and white space.

    python3 tools/make_unicode.py > model/unicode_ranges.inc
"""
import sys
import unicodedata

# White_Space of the Unicode Character Database.
SPACES = [0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, *range(0x9, 0xE), *range(0x2000, 0x200B)]


def ranges(holds):
    first, found = None, []
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and holds(code)
        if inside and first is None:
            first = code
        if not inside and first is not None:
            found.append((first, code - 1))
            first = None
    return found


def show(name, found):
    print(f"constexpr Range {name}[] = {{")
    line = "   "
    for first, last in found:
        item = f" {{0x{first:X}, 0x{last:X}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")


print(f"// Unicode {unicodedata.unidata_version}, by tools/make_unicode.py.")
show("kLetters", ranges(lambda c: unicodedata.category(chr(c)).startswith("L")))
show("kNumbers", ranges(lambda c: unicodedata.category(chr(c)).startswith("N")))
show("kSpaces", ranges(lambda c: c in SPACES))
