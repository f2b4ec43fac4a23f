"""Damages the headers of real model files in every way that a byte can be wrong."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from engine.loading import gguf_header
from engine.loading.gguf_window import Window
from engine.loading.progress import no_breath

_EXTREMES = (0, 1, 2, 7, 8, 9, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
_WORDS = ("F32", "F64", "BF16", "I8", "U64", "F4", "BOOL", "Q4_0", "", "\u202e", "\\u0000")
_VALUES = ("null", "true", "-1", "1e400", "0.5", "[]", "{}", '"x"', "1" * 30, "[[[]]]", "NaN")


@dataclass
class Damaged:
    """A file under test. ``head``: its header as it should be; ``size``: of the whole file, whose
    rest is a hole. ``numbers``: where the header has its integers, and how many bytes each.
    """

    path: Path
    head: bytes
    size: int
    numbers: list[tuple[int, int]] = field(default_factory=list)

    @contextmanager
    def with_head(self, head: bytes, size: int | None = None) -> Iterator[Path]:
        """The file with another header, for as long as it is looked at."""
        with self.path.open("r+b") as file:
            file.write(head)
            file.truncate(self.size if size is None else size)
        try:
            yield self.path
        finally:
            with self.path.open("r+b") as file:
                file.write(self.head)
                file.truncate(self.size)
                self._clear(file, len(self.head), len(head))

    def _clear(self, file: BinaryIO, start: int, end: int) -> None:
        if end > start:
            file.seek(start)
            file.write(bytes(end - start))


def of_gguf(source: Path, path: Path) -> Damaged:
    """``source``'s header with a hole for its data, at ``path``."""
    numbers: list[tuple[int, int]] = []

    class Noting(Window):
        """Notes where integers are read."""

        def take(self, num_bytes: int) -> bytes:
            if num_bytes in (2, 4, 8):
                numbers.append((self.position, num_bytes))
            return super().take(num_bytes)

        def skip_texts(self, count: int) -> None:
            numbers.append((self.position, 8))
            super().skip_texts(count)

    size = source.stat().st_size
    with source.open("rb") as file:
        window = Noting(file, source, size, no_breath)
        window.skip(4)
        header = gguf_header._read(window)
        file.seek(0)
        head = file.read(min((tensor.offset for tensor in header.tensors), default=size))
    return _written(Damaged(path, head, size, numbers))


def of_parts(sources: Sequence[Path], folder: Path) -> list[Damaged]:
    """The same of each part of a GGUF, side by side in ``folder``."""
    folder.mkdir()
    return [of_gguf(source, folder / source.name) for source in sources]


@contextmanager
def damaged_parts(parts: Sequence[Damaged], chance: random.Random) -> Iterator[str]:
    """Something wrong with one part of a model, or with which part is which; what it was."""
    one, other = chance.sample(list(parts), 2)
    fate = chance.random()
    if fate < 0.8:
        kind, head, size = damage(one, chance)
        with one.with_head(head, size):
            yield f"{one.path.name} {kind}"
    elif fate < 0.9:
        with one.with_head(other.head, other.size), other.with_head(one.head, one.size):
            yield f"{one.path.name} and {other.path.name} exchanged"
    elif fate < 0.95:
        with one.with_head(other.head, other.size):
            yield f"{other.path.name} is there twice"
    else:
        aside = one.path.with_suffix(".aside")
        one.path.rename(aside)
        try:
            yield f"{one.path.name} is gone"
        finally:
            aside.rename(one.path)


def of_safetensors(source: Path, path: Path) -> Damaged:
    """The same of a safetensors file."""
    with source.open("rb") as file:
        prefix = file.read(8)
        head = prefix + file.read(struct.unpack("<Q", prefix)[0])
    return _written(Damaged(path, head, source.stat().st_size, [(0, 8)]))


def _written(damaged: Damaged) -> Damaged:
    with damaged.path.open("wb") as file:
        file.write(damaged.head)
        file.truncate(damaged.size)
    return damaged


def damage(target: Damaged, chance: random.Random) -> tuple[str, bytes, int]:
    """One or more things wrong: their names, the header, and the file's size."""
    head, size, names = bytearray(target.head), target.size, []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        kind = chance.choice(_KINDS)
        names.append(kind.__name__)
        size = kind(target, head, size, chance)
    return "+".join(names), bytes(head), max(size, 0)


def damage_text(target: Damaged, chance: random.Random) -> tuple[str, bytes, int]:
    """Something wrong in a header of JSON; its length before it is mostly put right."""
    text = target.head[8:].decode()
    kind = chance.choice((_number, _word, _value, _repeat, _nest))
    text = kind(text, chance)
    data = text.encode("utf-8", "surrogatepass")
    length = len(data) if chance.random() < 0.9 else chance.choice(_EXTREMES)
    # The data keep their place, so that only what is meant is wrong.
    size = target.size - len(target.head) + 8 + len(data)
    return kind.__name__, struct.pack("<Q", length) + data, size


def _flip(target: Damaged, head: bytearray, size: int, chance: random.Random) -> int:
    """Bits, in the first part of the header mostly: the rest is vocabulary."""
    reach = len(head) if chance.random() < 0.5 else min(len(head), 2000)
    for _ in range(chance.randint(1, 8)):
        head[chance.randrange(reach)] ^= 1 << chance.randrange(8)
    return size


def _cut(target: Damaged, head: bytearray, size: int, chance: random.Random) -> int:
    return chance.choice((chance.randrange(len(head)), chance.randrange(size), size - 1))


def _inflate(target: Damaged, head: bytearray, size: int, chance: random.Random) -> int:
    """A count, length, type, dimension or offset becomes another number."""
    place, width = chance.choice(target.numbers)
    old = int.from_bytes(head[place : place + width], "little")
    new = chance.choice((*_EXTREMES, old + 1, old - 1, old * 2, old ^ 1, chance.getrandbits(64)))
    head[place : place + width] = (new % (1 << 8 * width)).to_bytes(width, "little")
    return size


def _exchange(target: Damaged, head: bytearray, size: int, chance: random.Random) -> int:
    (one, width), (other, _) = chance.choice(target.numbers), chance.choice(target.numbers)
    first, second = head[one : one + width], head[other : other + width]
    head[one : one + width], head[other : other + width] = second, first
    return size


def _noise(target: Damaged, head: bytearray, size: int, chance: random.Random) -> int:
    place = chance.randrange(len(head))
    length = min(chance.randint(1, 64), len(head) - place)
    head[place : place + length] = chance.randbytes(length)
    return size


def _shift(target: Damaged, head: bytearray, size: int, chance: random.Random) -> int:
    """Bytes go missing or come twice: everything after them is elsewhere."""
    place, length = chance.randrange(len(head)), chance.randint(1, 16)
    if chance.random() < 0.5:
        del head[place : place + length]
    else:
        head[place:place] = head[place : place + length]
    return size


_KINDS = (_flip, _cut, _inflate, _inflate, _inflate, _exchange, _noise, _shift)


def _number(text: str, chance: random.Random) -> str:
    found = chance.choice(list(re.finditer(r"\d+", text)))
    old = int(found.group())
    new = chance.choice((*_EXTREMES, old + 1, old - 1, -old, old * 2, 10**400))
    return text[: found.start()] + str(new) + text[found.end() :]


def _word(text: str, chance: random.Random) -> str:
    found = chance.choice(list(re.finditer(r'"[^"]*"', text)))
    return text[: found.start()] + f'"{chance.choice(_WORDS)}"' + text[found.end() :]


def _value(text: str, chance: random.Random) -> str:
    found = chance.choice(list(re.finditer(r'(?<=:)("[^"]*"|\[[^\[\]]*\]|\{[^{}]*\})', text)))
    return text[: found.start()] + chance.choice(_VALUES) + text[found.end() :]


def _repeat(text: str, chance: random.Random) -> str:
    """An entry twice, or one gone."""
    found = chance.choice(list(re.finditer(r'"[^"]*":\{[^{}]*\},', text)))
    again = found.group() * 2 if chance.random() < 0.5 else ""
    return text[: found.start()] + again + text[found.end() :]


def _nest(text: str, chance: random.Random) -> str:
    place, depth = chance.randrange(len(text)), chance.choice((1, 50, 5_000, 200_000))
    return text[:place] + chance.choice(("[", '{"a":', "[[],", "-")) * depth + text[place:]
