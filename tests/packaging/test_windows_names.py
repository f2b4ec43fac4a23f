"""File names that Windows takes: those of this tree, and those that the program makes."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

from app.conversation import Conversation
from app.exporting import file_name
from app.file_names import legal_name
from app.paths import Profile
from app.store import Store
from engine.loading.source import Source, expanded_folder

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = Path(os.environ.get("QUIRE_BUNDLE", ROOT / "dist" / "quire"))

LONGEST_PATH = 259
"""Of a path on a Windows that nobody has told to allow more; the 260th is the end mark."""
USER = "C:\\Users\\" + 20 * "x"
"""Windows' user names have at most 20 characters."""
DATA = f"{USER}\\AppData\\Local\\Quire"
PROGRAM = f"{USER}\\AppData\\Local\\Programs\\Quire"
CLONE = f"{USER}\\Documents\\source\\quire"

ILLEGAL = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
DEVICES = re.compile(r"(?i)(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?")


def is_legal(name: str) -> bool:
    return bool(
        name
        and not ILLEGAL.search(name)
        and not DEVICES.fullmatch(name)
        and not name.endswith((".", " "))
        and len(name.encode()) <= 255
    )


def tracked() -> list[PurePosixPath]:
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, encoding="utf-8", check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no git here: {error}")
    return [PurePosixPath(name) for name in listed.stdout.split("\0") if name]


@pytest.mark.parametrize(
    "name", ["con", "CON.txt", "aux .py", "lpt1", "com¹.x", "a:b", "a?", "a.", "a ", "", "x" * 256]
)
def test_illegal_name_is_known_as_such(name: str) -> None:
    assert not is_legal(name)


# --- this tree ------------------------------------------------------------------------------------


def test_every_file_of_the_tree_has_a_name_that_windows_takes() -> None:
    assert [str(p) for p in tracked() if not all(map(is_legal, p.parts))] == []


def test_no_two_files_of_the_tree_differ_in_case_alone() -> None:
    counted = Counter(str(path).lower() for path in tracked())
    assert [name for name, count in counted.items() if count > 1] == []


def test_tree_can_be_cloned_into_an_ordinary_folder() -> None:
    longest = max(tracked(), key=lambda path: len(str(path)))
    assert len(f"{CLONE}\\{longest}") <= LONGEST_PATH, longest


@pytest.mark.frozen
def test_program_can_be_installed_into_its_ordinary_folder() -> None:
    if not BUNDLE.is_dir():
        pytest.skip("there is no build in dist/")
    paths = [path.relative_to(BUNDLE) for path in BUNDLE.rglob("*")]
    longest = max(paths, key=lambda path: len(str(path)))
    assert len(f"{PROGRAM}\\{longest}") <= LONGEST_PATH, longest
    assert [str(path) for path in paths if not is_legal(path.name)] == []
    counted = Counter(str(path).lower() for path in paths)
    assert [name for name, count in counted.items() if count > 1] == []


# --- what the program makes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("What is a block?", "What is a block.md"),
        ("C:\\Users", "C Users.md"),
        ("con", "Quire con.md"),
        ("NUL.tar", "Quire NUL.tar.md"),
        ("aux ", "Quire aux.md"),
        ("com³", "Quire com³.md"),
        ("a. . .", "a.md"),
        ("tab\tand\nline\x7f", "tab and line.md"),
        ("\ud800", "Quire.md"),
        ("缓存", "缓存.md"),
    ],
)
def test_words_become_a_name_that_says_as_much_as_it_may(words: str, name: str) -> None:
    assert legal_name(words, ".md") == name


@pytest.mark.parametrize("words", ["x" * 300, "張" * 300, "🦓" * 300, "a.b. " * 90, "\u0301" * 300])
def test_long_words_leave_room_for_what_is_added(words: str) -> None:
    # A second export of the same title, while it is being written.
    name = f"{file_name(Conversation(title=words), ' (999).json')}.partial"
    assert is_legal(name)


def test_files_of_a_profile_have_legal_names(tmp_path: Path) -> None:
    profile = Profile(tmp_path)
    profile.database.write_bytes(b"no database" * 1000)
    Store(profile).close()
    names = [path.name for path in tmp_path.iterdir()]
    assert any(".damaged-" in name for name in names)
    assert all(map(is_legal, names)), names
    longest = max(names, key=len)
    assert len(f"{DATA}\\profile\\{longest}-journal") <= LONGEST_PATH


@pytest.mark.parametrize("stem", ["x" * 240, "張" * 80, "🦓" * 60, "a b:c?d"])
def test_expanded_model_has_a_legal_name_and_a_short_path(stem: str) -> None:
    source = Source(f"{stem}.gguf", "", 1, 1, "0123456789abcdef")
    folder = expanded_folder(source, Path(DATA) / "models")
    assert is_legal(folder.name)
    assert len(f"{DATA}\\models\\{folder.name}\\tokenizer_config.json") <= LONGEST_PATH
