"""Which names of a hub may become files here, and what a file's name tells. Qt-free."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from app.fetching.errors import UnsafeNameError

PARTIAL_SUFFIX = ".partial"
STATE_SUFFIX = ".partial.json"
LOCK_SUFFIX = ".partial.lock"
JOB_SUFFIX = ".fetch.json"
TRASH_SUFFIX = ".fetch-trash"

_MAX_COMPONENT = 180
_MAX_DEPTH = 4
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\\u200e\u200f\u202a-\u202e\u2066-\u2069]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*)?", re.ASCII)
_MAX_REPO_ID = 96
_QUANTIZATION = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q[1-8]_[0-9A-Z]+(?:_[0-9A-Z]+)*|TQ[12]_0|MXFP4(?:_MOE)?|BF16|F16|F32|FP16))"
    r"(?=[-./]|$)",
    re.IGNORECASE,
)


def local_name(name: str) -> str:
    """The file name under which ``name`` of a repository is kept: folders become part of it.

    Raises:
        UnsafeNameError: it climbs out of the folder, or no system could keep it.
    """
    parts = name.split("/")
    if len(parts) > _MAX_DEPTH or any(_is_unsafe(part) for part in parts):
        raise UnsafeNameError(f"The hub lists a file that cannot be kept: {name!r}.", name=name)
    joined = "--".join(parts)
    if len(joined.encode()) > _MAX_COMPONENT:
        raise UnsafeNameError(f"The hub lists a file with a name too long: {name!r}.", name=name)
    return joined


def _is_unsafe(part: str) -> bool:
    if not part or part in (".", "..") or part != part.strip() or part.endswith("."):
        return True
    return bool(_FORBIDDEN.search(part) or _RESERVED.fullmatch(part))


def folder_name(repo_id: str) -> str:
    """The folder of a repository in the model folder: ``org--name``.

    Raises:
        UnsafeNameError: this is no repository's name.
    """
    fits = len(repo_id) <= _MAX_REPO_ID and _REPO_ID.fullmatch(repo_id) and ".." not in repo_id
    if not fits or any(_is_unsafe(part) for part in repo_id.split("/")):
        raise UnsafeNameError(f"{repo_id!r} is not the name of a repository.", name=repo_id)
    return repo_id.replace("/", "--")


def query_of(text: str) -> str:
    """What to search for: of a pasted address of a model only the model's name."""
    text = text.strip()
    if text.startswith(("http://", "https://")):
        parts = urlsplit(text).path.strip("/").split("/")
        return "/".join(parts[:2])
    return text


def quantization_of(name: str) -> str:
    """The quantisation that a GGUF's name tells, as ``Q4_K_M``; empty if it tells none."""
    found = _QUANTIZATION.findall(name.removesuffix(".gguf"))
    return str(found[-1]).upper() if found else ""
