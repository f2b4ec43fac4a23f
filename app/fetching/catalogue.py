"""What a hub offers: search results, a repository, and what of it can be fetched. Qt-free."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.fetching.errors import UnsafeNameError
from app.fetching.names import local_name, quantization_of
from engine.api.model_files import PICKLED_SUFFIXES, PartName

INDEX_NAME = "model.safetensors.index.json"
CONFIG_NAME = "config.json"
# What the engine reads beside the weights of a folder; never anything that can run code.
SIDE_FILES = frozenset(
    {
        CONFIG_NAME,
        INDEX_NAME,
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
    }
)


class Kind(StrEnum):
    GGUF = "gguf"
    SAFETENSORS = "safetensors"


class Unusable(StrEnum):
    """Why a choice is shown and cannot be fetched."""

    INCOMPLETE = "incomplete"
    NO_CONFIG = "no_config"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository at one commit. ``size`` in bytes.

    ``sha256`` of a large file's content, or ``git_sha1`` of a small one: SHA-1 over git's blob
    header and the content.
    """

    name: str
    size: int
    sha256: str = ""
    git_sha1: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing to fetch: a GGUF in one file or in parts, or the files of a Hugging Face folder, in
    the order of fetching.

    ``config.json`` comes last, so that a folder that is not complete does not look like a model.
    ``missing``: numbers of the parts that the repository does not have.
    """

    key: str
    kind: Kind
    files: tuple[RemoteFile, ...]
    unusable: Unusable | None = None
    missing: tuple[int, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def num_parts(self) -> int:
        """Files that the model itself lies in; 1 of a folder."""
        return len(self.files) + len(self.missing) if self.kind is Kind.GGUF else 1

    @property
    def weight_bytes(self) -> int:
        """Of the weights alone: about what the model takes in memory."""
        suffix = f".{self.kind}"
        return sum(file.size for file in self.files if file.name.lower().endswith(suffix))


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One line of a search. ``num_parameters`` is 0 where the hub does not tell."""

    repo_id: str
    downloads: int
    licence: str
    num_parameters: int
    gated: bool
    has_gguf: bool


@dataclass(frozen=True, slots=True)
class SearchPage:
    """``next_url``: where the hub goes on, or empty."""

    results: tuple[SearchResult, ...]
    next_url: str = ""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository at one commit. ``page``: its address for people.

    ``has_pickles``: there are weights in a form that can run code, which are not offered.
    """

    repo_id: str
    commit: str
    licence: str
    gated: bool
    downloads: int
    choices: tuple[Choice, ...]
    has_pickles: bool
    page: str


def choices_of(files: Sequence[RemoteFile]) -> tuple[Choice, ...]:
    """What can be fetched of a repository: first the folder, then GGUFs from small to large.

    Raises:
        UnsafeNameError: a file that would be fetched has a name that cannot be kept.
    """
    found = [*_folder(files), *sorted(_ggufs(files), key=lambda choice: choice.total_bytes)]
    for choice in found:
        names = [local_name(file.name).casefold() for file in choice.files]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            # Windows and macOS would keep one file for both.
            name = sorted(twice)[0]
            raise UnsafeNameError(f"The hub lists {name!r} twice.", name=name)
    return tuple(found)


def has_pickles(names: Iterable[str]) -> bool:
    """Whether there are weights that can run code when they are read."""
    return any(name.lower().endswith(PICKLED_SUFFIXES) for name in names)


def _ggufs(files: Sequence[RemoteFile]) -> list[Choice]:
    found: dict[tuple[str, int], list[RemoteFile]] = defaultdict(list)
    for file in files:
        base = file.name.rpartition("/")[2].lower()
        # Projectors of pictures and statistics of quantising are no models.
        if base.endswith(".gguf") and not base.startswith(("mmproj", "imatrix")):
            part = PartName.of(file.name)
            found[(file.name, 1) if part is None else (part.whole, part.count)].append(file)
    kinds = Counter(_gguf_key(name) for name, _count in found)
    names = Counter(name for name, _count in found)
    choices = []
    for (name, count), files in found.items():
        # Two of one kind: the name tells them apart, or that of a file if they were cut twice.
        key = min(file.name for file in files) if names[name] > 1 else name
        kind = _gguf_key(name)
        choices.append(_gguf(kind if kinds[kind] == 1 else key, count, files))
    return choices


def _gguf(key: str, count: int, files: Sequence[RemoteFile]) -> Choice:
    ordered = tuple(sorted(files, key=lambda file: file.name))
    there = {part.number for file in files if (part := PartName.of(file.name)) is not None}
    missing = tuple(n for n in range(1, count + 1) if n not in there) if there else ()
    unusable = Unusable.INCOMPLETE if missing else None
    return Choice(key, Kind.GGUF, ordered, unusable, missing)


def _gguf_key(name: str) -> str:
    return quantization_of(name) or name.rpartition("/")[2]


def _folder(files: Sequence[RemoteFile]) -> list[Choice]:
    root = {file.name: file for file in files if "/" not in file.name}
    weights = _weights(root)
    if not weights:
        return []
    sides = [root[name] for name in sorted(SIDE_FILES & root.keys()) if name != CONFIG_NAME]
    if CONFIG_NAME not in root:
        return [Choice("safetensors", Kind.SAFETENSORS, (*weights, *sides), Unusable.NO_CONFIG)]
    return [Choice("safetensors", Kind.SAFETENSORS, (*weights, *sides, root[CONFIG_NAME]))]


def _weights(root: dict[str, RemoteFile]) -> list[RemoteFile]:
    if INDEX_NAME in root:
        shards = [n for n in root if n.startswith("model-") and n.endswith(".safetensors")]
        return [root[name] for name in sorted(shards)]
    single = root.get("model.safetensors")
    return [single] if single is not None else []
