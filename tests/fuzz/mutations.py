"""Ways to spoil a file."""

import random
import struct
import zlib
from collections.abc import Callable

from .seeds import seeds

_NUMBERS = (0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31)
_LARGE = (*_NUMBERS, 2**32 - 1, 2**32, 2**63 - 1, 2**64 - 1)
_TAGS = (254, 255, 256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 282, 284, 317, 320, 322,
         323, 324, 325, 330, 338, 339, 347, 33550, 33922, 34264, 34665, 34735, 34736, 34737, 42112,
         42113, 50844)  # fmt: skip
_SIGNATURE = 8

Spoil = Callable[[bytearray, random.Random], None]


def spoiled(content: bytes, chance: random.Random) -> bytes:
    """A file with one to eight things wrong with it."""
    data = bytearray(content)
    ways = _ways(content)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 4, 8))):
        if data:
            chance.choice(ways)(data, chance)
    return bytes(data)


def _ways(content: bytes) -> list[Spoil]:
    ways = [_bits, _bytes, _number, _cut, _without, _twice, _more, _other, _zeros]
    if content[:2] in (b"II", b"MM"):
        return [*ways, *[_entry] * 12]
    if content[:4] == b"\x89PNG":
        return [*ways, *[_chunk] * 8]
    if content[:2] in (b"\xff\xd8", b"\xff\x4f"):
        return [*ways, *[_segment] * 6]
    return [*ways, *[_early] * 4]


def _place(data: bytearray, chance: random.Random) -> int:
    # What a file says of itself stands mostly at its beginning, or at its end.
    near = min(len(data), 400)
    return chance.choice(
        (
            chance.randrange(len(data)),
            chance.randrange(near),
            len(data) - 1 - chance.randrange(near),
        )
    )


def _bits(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 2, 10))):
        data[_place(data, chance)] ^= 1 << chance.randrange(8)


def _bytes(data: bytearray, chance: random.Random) -> None:
    at = _place(data, chance)
    length = chance.choice((1, 2, 4, 8, 64))
    data[at : at + length] = chance.randbytes(min(length, len(data) - at))


def _number(data: bytearray, chance: random.Random) -> None:
    form = chance.choice("<>") + chance.choice("BHIQ")
    size = struct.calcsize(form)
    number = struct.pack(form, chance.choice(_LARGE) % 2 ** (8 * size))
    at = _place(data, chance)
    data[at : at + size] = number[: len(data) - at]


def _early(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(min(len(data), 128))
    data[at] = chance.choice((0, 255, data[at] ^ 1, chance.randrange(256), *b"0123456789 (),<>"))


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[_place(data, chance) :]


def _without(data: bytearray, chance: random.Random) -> None:
    at = _place(data, chance)
    del data[at : at + chance.choice((1, 2, 16, 300))]


def _twice(data: bytearray, chance: random.Random) -> None:
    at = _place(data, chance)
    part = data[at : at + chance.choice((1, 12, 100, 1000))]
    data[at:at] = part * chance.choice((1, 1, 20))


def _more(data: bytearray, chance: random.Random) -> None:
    data += chance.randbytes(chance.choice((1, 100, 5000)))


def _other(data: bytearray, chance: random.Random) -> None:
    other = chance.choice(list(seeds().values()))
    at, start = _place(data, chance), chance.randrange(len(other))
    length = chance.choice((8, 64, 1024))
    data[at : at + length] = other[start : start + length]


def _zeros(data: bytearray, chance: random.Random) -> None:
    at, length = _place(data, chance), chance.choice((4, 100, 4000))
    length = min(length, len(data) - at)
    data[at : at + length] = bytes([chance.choice((0, 0, 255))]) * length


def _entry(data: bytearray, chance: random.Random) -> None:
    """Changes one entry of a TIFF's directory, or where the next directory is."""
    order = "<" if data[:2] == b"II" else ">"
    big = len(data) > 3 and 43 in (data[2], data[3])
    try:
        first = struct.unpack_from(f"{order}{'Q' if big else 'I'}", data, 8 if big else 4)[0]
        count = struct.unpack_from(f"{order}{'Q' if big else 'H'}", data, first)[0]
        at = first + (8 if big else 2)
        size, word = (20, "Q") if big else (12, "I")
        if chance.random() < 0.1:
            target = chance.choice((first, 8, 0, len(data) - 1, chance.randrange(len(data))))
            struct.pack_into(f"{order}{word}", data, at + count * size, target)
            return
        at += chance.randrange(max(1, min(count, 64))) * size
        part = chance.randrange(4)
        if part == 0:
            struct.pack_into(f"{order}H", data, at, chance.choice(_TAGS))
        elif part == 1:
            struct.pack_into(f"{order}H", data, at + 2, chance.choice((*range(20), 65535)))
        else:
            number = chance.choice((*_LARGE, chance.randrange(len(data)))) % 256 ** (size // 2 - 2)
            form, shift = chance.choice((("H", 0), (word, 0)))
            number %= 2 ** (8 * struct.calcsize(form))
            where = at + 4 if part == 2 else at + 4 + struct.calcsize(word)
            struct.pack_into(f"{order}{word if part == 2 else form}", data, where + shift, number)
    except (struct.error, IndexError, OverflowError):
        _bytes(data, chance)


def _chunk(data: bytearray, chance: random.Random) -> None:
    """Changes a chunk of a PNG, and its sum of check, so that it is believed."""
    places, at = [], _SIGNATURE
    while at + 12 <= len(data):
        places.append(at)
        at += 12 + struct.unpack_from(">I", data, at)[0]
    if not places:
        return _bytes(data, chance)
    at = chance.choice(places)
    length = struct.unpack_from(">I", data, at)[0]
    end = min(at + 8 + length, len(data))
    way = chance.randrange(4)
    if way == 0 and end > at + 8:
        data[chance.randrange(at + 8, end)] = chance.choice((0, 1, 255, chance.randrange(256)))
    elif way == 1 and end >= at + 12:
        struct.pack_into(">I", data, chance.choice((at + 8, min(at + 12, end - 4))),
                         chance.choice(_LARGE) % 2**32)  # fmt: skip
    elif way == 2:
        names = (b"tRNS", b"PLTE", b"IDAT", b"zTXt", b"iTXt", b"eXIf", b"sBIT", b"IEND", b"gAMA")
        data[at + 4 : at + 8] = chance.choice(names)
    else:
        struct.pack_into(">I", data, at, chance.choice(_LARGE) % 2**32)
    if end + 4 <= len(data):
        struct.pack_into(">I", data, end, zlib.crc32(data[at + 4 : end]))


def _segment(data: bytearray, chance: random.Random) -> None:
    """Changes something right after a marker of a JPEG or a JPEG 2000."""
    places = [i for i in range(len(data) - 12) if data[i] == 0xFF and data[i + 1] not in (0, 0xFF)]
    if not places:
        return _bytes(data, chance)
    at = chance.choice(places[: chance.choice((4, 12, len(places)))])
    if chance.random() < 0.3:
        data[at + 1] = chance.choice((*range(0xC0, 0xF0), *range(0x4F, 0x65), 0x90, 0x93))
    else:
        number = chance.choice(_NUMBERS) % 65536
        struct.pack_into(">H", data, at + chance.randrange(2, 11), number)
