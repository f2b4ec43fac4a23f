"""Headers with every byte possibly wrong end in a clear error, in bounded time and memory."""

from __future__ import annotations

import random
import re
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.loading.describe import describe
from engine.loading.gguf_header import read_gguf_header
from engine.loading.gguf_parts import read_gguf
from engine.loading.model_folder import open_model
from engine.loading.safetensors_file import read_header
from tests.helpers.broken_headers import (
    Damaged,
    damage,
    damage_text,
    damaged_parts,
    of_gguf,
    of_parts,
    of_safetensors,
)
from tests.helpers.split_gguf import split_gguf
from tests.helpers.starter import starter_gguf
from tests.helpers.tiny_gguf import TinyGguf

MAX_S = 1.0
"""Of a processor: others use the machine too. Tracing memory takes most of it."""

MAX_GROWTH_BYTES = 200 << 20
# What an error has to name: a place in the file, a tensor, or an entry of the metadata.
NAMED = re.compile(
    r"\bbyte [\d,]+|[\d,]+ bytes|[Tt]ensor \S|its \d+ tensors|[Pp]art \d"
    r"|(entry|for|architecture is) \S+|config\.json"
)


@dataclass
class Seen:
    """What came of all cases. ``slowest`` and ``largest``: of one case, seconds and bytes.
    ``start`` and ``growth`` measure memory: before a case, and after it.
    """

    start: Callable[[], int]
    growth: Callable[[int], int]
    ends: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    largest: int = 0


@pytest.fixture
def seen() -> Iterator[Seen]:
    """Memory by Python's own account: exact, and slow."""

    def start() -> int:
        tracemalloc.reset_peak()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        yield Seen(start, lambda before: tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()


@pytest.fixture
def seen_from_outside() -> Seen:
    """Memory as the system sees it: how far the process's peak was raised."""
    return Seen(peak_rss, lambda before: peak_rss() - before)


def peak_rss() -> int:
    """Most bytes that this process has had in memory so far."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def check(path: Path, look: Callable[[Path], None], seen: Seen, case: str) -> None:
    """One look at a damaged file: it opens, or an error says where it is wrong."""
    before = seen.start()
    begun = time.thread_time()
    try:
        look(path)
        seen.ends["opened"] += 1
    except (ModelFileError, UnsupportedModelError) as error:
        message = str(error)
        assert NAMED.search(message.replace(path.name, "")), f"{case}: {message}"
        assert message.isprintable(), f"{case}: {message!r}"
        assert len(message) < 2_000, f"{case}: {message[:200]}"
        seen.ends[type(error).__name__] += 1
    took = time.thread_time() - begun
    growth = seen.growth(before)
    assert took < MAX_S, f"{case}: {took:.2f} s"
    assert growth < MAX_GROWTH_BYTES, f"{case}: {growth:,} bytes"
    seen.slowest, seen.largest = max(seen.slowest, took), max(seen.largest, growth)


def look_at_gguf(path: Path) -> None:
    """The header, and what a description makes of it; tensors lie in the file and apart."""
    header = read_gguf_header(path)
    end = 0
    for tensor in sorted(header.tensors, key=lambda each: each.offset):
        assert tensor.offset >= end
        end = tensor.offset + tensor.nbytes
    assert end <= path.stat().st_size
    describe(path)


def look_at_parts(path: Path) -> None:
    """As many tensors as all parts tell, no two of one name, each within its part."""
    found = read_gguf(path)
    assert len({tensor.name for tensor in found.tensors}) == len(found.tensors)
    assert found.header.metadata["split.tensors.count"] == len(found.tensors)
    for tensor in found.tensors:
        assert tensor.offset + tensor.nbytes <= found.paths[tensor.part].stat().st_size
    describe(path)


def look_at_safetensors(path: Path) -> None:
    entries, _ = read_header(path)
    assert sum(entry.num_elements for entry in entries.values()) <= path.stat().st_size


@pytest.fixture
def starter(tmp_path: Path) -> Damaged:
    return of_gguf(starter_gguf(), tmp_path / "starter.gguf")


@pytest.fixture
def tiny(tmp_path: Path) -> Damaged:
    return of_gguf(TinyGguf().write(tmp_path / "whole.gguf"), tmp_path / "tiny.gguf")


@pytest.fixture
def shard(tmp_path: Path) -> Damaged:
    whole = TinyGguf().write(tmp_path / "whole.gguf")
    folder = open_model(whole, tmp_path / "models").folder
    return of_safetensors(folder / "model.safetensors", tmp_path / "tiny.safetensors")


@pytest.fixture
def parts(tmp_path: Path) -> list[Damaged]:
    whole = TinyGguf().write(tmp_path / "whole.gguf")
    return of_parts(split_gguf(whole, tmp_path / "parts.gguf", (5, 12)), tmp_path / "in parts")


def run_parts(parts: list[Damaged], count: int, seen: Seen, seed: int = 0) -> None:
    for number in range(count):
        chance = random.Random(f"{seed} parts {number}")
        with damaged_parts(parts, chance) as kind:
            path = next(part.path for part in parts if part.path.exists())
            check(path, look_at_parts, seen, f"{number} {kind}")
    for part in parts:
        look_at_parts(part.path)


def run(target: Damaged, count: int, seen: Seen, seed: int = 0) -> None:
    is_text = target.path.suffix == ".safetensors"
    look = look_at_safetensors if is_text else look_at_gguf
    for number in range(count):
        chance = random.Random(f"{seed} {target.path.name} {number}")
        make = damage_text if is_text and chance.random() < 0.7 else damage
        kind, head, size = make(target, chance)
        with target.with_head(head, size) as path:
            check(path, look, seen, f"{path.name} {number} {kind}")
    # The file itself is whole: what was wrong was the damage.
    look(target.path)


def test_damaged_headers_of_a_gguf_file(tiny: Damaged, seen: Seen) -> None:
    run(tiny, 300, seen)
    assert seen.ends["ModelFileError"] > 200
    assert seen.ends["opened"] > 0


def test_damaged_headers_of_a_real_gguf_file(starter: Damaged, seen_from_outside: Seen) -> None:
    run(starter, 150, seen_from_outside)
    assert seen_from_outside.ends["ModelFileError"] > 100


def test_damaged_headers_of_a_safetensors_file(shard: Damaged, seen: Seen) -> None:
    run(shard, 300, seen)
    assert seen.ends["ModelFileError"] > 200


def test_damaged_headers_of_a_gguf_in_parts(parts: list[Damaged], seen: Seen) -> None:
    run_parts(parts, 300, seen)
    assert seen.ends["ModelFileError"] > 200
    assert seen.ends["ModelPartsMissingError"] > 5
    assert seen.ends["opened"] > 0


def test_a_damaged_file_that_opens_is_loaded_or_refused(tiny: Damaged, tmp_path: Path) -> None:
    """What the header check lets through: the whole way to weights and tokenizer."""
    ends: Counter[str] = Counter()
    for number in range(40):
        chance = random.Random(f"load {number}")
        kind, head, size = damage(tiny, chance)
        with tiny.with_head(head, size) as path:
            try:
                files = open_model(path, tmp_path / f"models-{number}")
                assert sum(1 for _ in files.weights()) == len(files.entries)
                files.tokenizer()
                ends["loaded"] += 1
            except (ModelFileError, UnsupportedModelError):
                ends["refused"] += 1
            except Exception as error:
                pytest.fail(f"{number} {kind}: {type(error).__name__}: {error}")
    assert ends["loaded"] > 0
    assert ends["refused"] > 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_damaged_headers(
    starter: Damaged,
    tiny: Damaged,
    parts: list[Damaged],
    shard: Damaged,
    seen_from_outside: Seen,
) -> None:
    seen = seen_from_outside
    for target, count in ((tiny, 2_500), (shard, 3_000), (starter, 2_000)):
        run(target, count, seen, seed=1)
    run_parts(parts, 2_500, seen, seed=1)
    print(f"{dict(seen.ends)}, slowest {seen.slowest:.3f} s, largest {seen.largest:,} bytes")
    assert sum(seen.ends.values()) == 10_000
