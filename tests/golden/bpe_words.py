#!/usr/bin/env python3
"""Words of GPT-2's tokenizer, cut by its regular expression.

Writes bpe_words.json beside this script: pairs of a text and its words. The expression is GPT-2's,
    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+
with Unicode's classes spelled out as ranges, since Python's re has no \\p. White space is Unicode's White_Space.

    python3 tests/golden/bpe_words.py
"""
import json
import pathlib
import random
import re
import sys
import unicodedata

WHITE_SPACE = [0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, *range(0x9, 0xE), *range(0x2000, 0x200B)]


def ranges(codes):
    text, first, last = "", None, None
    for code in [*codes, None]:
        if first is not None and code != last + 1:
            text += f"{re.escape(chr(first))}-{re.escape(chr(last))}"
            first = None
        if first is None:
            first = code
        last = code
    return text


def of_category(letter):
    return ranges(c for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)).startswith(letter))


L, N, S = of_category("L"), of_category("N"), ranges(sorted(WHITE_SPACE))
WORD = re.compile(f"'s|'t|'re|'ve|'m|'ll|'d| ?[{L}]+| ?[{N}]+| ?[^{S}{L}{N}]+|[{S}]+(?![^{S}])|[{S}]+")
ALPHABET = list(" \t\n\r  ''stredvml aZ09.,!?-_\"") + ["\u00e9", "\u4e2d", "\u0663", "\u00bd", "\u00a0", "\u3000",
                                                        "\u200b", "\u0301", "\U0001f600", "\u2028", "\u16ee", "'re", "'ll"]


def main():
    random.seed(2)
    pairs = []
    for i in range(400):
        text = "".join(random.choice(ALPHABET) for _ in range(random.randrange(24)))
        words = WORD.findall(text)
        assert "".join(words) == text
        pairs.append([text, words])
    lines = ",\n".join(json.dumps(pair) for pair in pairs)
    pathlib.Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
