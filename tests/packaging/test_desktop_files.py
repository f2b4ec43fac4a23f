"""The menu entry and the description for Linux desktops, and what installs and removes them."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import desktop_files
import icons
from app import versions
from app.paths import APP_NAME
from desktop_files import APPSTREAM_ID, FOLDER, extra_files

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = Path(os.environ.get("QUIRE_BUNDLE", ROOT / "dist" / "quire"))
DATA_FOLDER = f".local/share/{APP_NAME}"

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="a shell script for Linux")


def desktop_entry(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser(delimiters="=", comment_prefixes="#", strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text(encoding="utf-8"))
    return dict(parser["Desktop Entry"])


def description() -> ElementTree.Element:
    return ElementTree.parse(FOLDER / f"{APPSTREAM_ID}.metainfo.xml").getroot()


def command_of(exec_line: str) -> list[str]:
    """The command behind an Exec= value, as the Desktop Entry Specification reads it."""
    string = exec_line.replace("\\\\", "\\")
    arguments = re.findall(r'"((?:[^"\\]|\\.)*)"', string)
    return [re.sub(r"\\(.)", r"\1", each).replace("%%", "%") for each in arguments]


# --- what the files say ---------------------------------------------------------------------------


def test_menu_entry_has_the_name_that_the_window_gives_itself() -> None:
    main = (ROOT / "app" / "main.py").read_text(encoding="utf-8")
    assert 'setDesktopFileName("quire")' in main
    assert (FOLDER / "quire.desktop").is_file()


@pytest.mark.parametrize("key", ["Name", "Comment", "Exec", "Icon", "Type", "Categories"])
def test_menu_entry_says_what_desktops_ask_for(key: str) -> None:
    assert desktop_entry(FOLDER / "quire.desktop")[key]


@pytest.mark.parametrize("key", ["GenericName", "Comment", "Keywords"])
def test_menu_entry_speaks_chinese_too(key: str) -> None:
    entry = desktop_entry(FOLDER / "quire.desktop")
    assert re.search(r"[\u4e00-\u9fff]", entry[f"{key}[zh_CN]"])


@pytest.mark.skipif(not shutil.which("desktop-file-validate"), reason="not installed")
def test_menu_entry_is_valid_to_the_desktops_own_tool() -> None:
    done = subprocess.run(
        ["desktop-file-validate", FOLDER / "quire.desktop"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_description_belongs_to_the_menu_entry_and_the_version() -> None:
    root = description()
    assert root.findtext("launchable") == "quire.desktop"
    assert root.findtext("id") == APPSTREAM_ID
    release = root.find("releases/release")
    assert release is not None
    assert release.get("version") == versions.VERSION


def test_description_speaks_chinese_too() -> None:
    language = "{http://www.w3.org/XML/1998/namespace}lang"
    for tag in ("summary", "description/p", "description/ul/li"):
        found = description().findall(tag)
        chinese = [e for e in found if e.get(language) == "zh-CN"]
        assert len(found) == 2 * len(chinese) > 0, tag


@pytest.mark.skipif(not shutil.which("appstreamcli"), reason="not installed")
def test_description_is_valid_to_appstreams_own_tool() -> None:
    done = subprocess.run(
        ["appstreamcli", "validate", "--no-net", FOLDER / f"{APPSTREAM_ID}.metainfo.xml"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_windows_gets_no_files_of_linux_desktops(tmp_path: Path) -> None:
    assert extra_files("win32", tmp_path) == []


def test_each_icon_has_the_size_of_its_folder(tmp_path: Path) -> None:
    drawn = {place: source for source, place in extra_files("linux", tmp_path) if "x" in place}
    sizes = []
    for place, source in drawn.items():
        if match := re.fullmatch(r"icons/hicolor/(\d+)x\1/apps/quire\.png", place):
            data = source.read_bytes()
            assert data[:8] == b"\x89PNG\r\n\x1a\n"
            assert int.from_bytes(data[16:20]) == int.from_bytes(data[20:24]) == int(match[1])
            sizes.append(int(match[1]))
    assert tuple(sizes) == icons.PNG_SIZES


def test_installer_knows_every_size_of_the_icon() -> None:
    script = (FOLDER / "install.sh").read_text(encoding="utf-8")
    match = re.search(r'^sizes="([\d ]+)"$', script, re.MULTILINE)
    assert match is not None
    assert tuple(map(int, match[1].split())) == icons.PNG_SIZES


# --- installing, replacing, removing --------------------------------------------------------------


class Machine:
    """A user's folder and an unpacked archive, each under a name with blanks and Chinese signs."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "張 庭 é's home"
        self.home.mkdir(parents=True)
        self.unpacked = folder / "unpacked é 張" / "quire"
        self.unpack("one")

    def unpack(self, version: str, *files: str) -> None:
        shutil.rmtree(self.unpacked, ignore_errors=True)
        internal = self.unpacked / "_internal"
        internal.mkdir(parents=True)
        for name in files:
            (internal / name).write_text(name)
        program = self.unpacked / "quire"
        program.write_text(f"#!/bin/sh\necho {version}\n")
        program.chmod(0o755)
        for source, place in extra_files("linux", self.unpacked.parent / "drawn"):
            target = self.unpacked / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    def run(self, *arguments: str, script: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [script or self.unpacked / "install.sh", *arguments],
            env={"HOME": str(self.home), "PATH": "/usr/bin:/bin"},
            cwd=self.home,
            capture_output=True,
            text=True,
        )

    def installed(self) -> set[str]:
        return {
            path.relative_to(self.home).as_posix()
            for path in self.home.rglob("*")
            # Not the desktop's own indices, which lie beside.
            if (path.is_file() or path.is_symlink()) and path.suffix != ".cache"
        }

    def chat(self) -> Path:
        database = self.home / DATA_FOLDER / "profile" / "conversations.sqlite3"
        database.parent.mkdir(parents=True)
        database.write_bytes(b"chats")
        return database


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@on_linux
def test_installed_program_starts_from_its_menu_entry(machine: Machine) -> None:
    done = machine.run()
    assert done.returncode == 0, done.stderr
    entry = desktop_entry(machine.home / ".local/share/applications/quire.desktop")
    command = command_of(entry["Exec"])
    assert command == [str(machine.home / ".local/lib/quire/quire")]
    assert subprocess.check_output(command, text=True) == "one\n"
    assert subprocess.check_output(machine.home / ".local/bin/quire", text=True) == "one\n"
    assert entry["Comment[zh_CN]"]
    assert (machine.home / ".local/share/icons/hicolor/48x48/apps/quire.png").is_file()
    assert (machine.home / f".local/share/metainfo/{APPSTREAM_ID}.metainfo.xml").is_file()


@on_linux
@pytest.mark.parametrize("name", ["100 % sure", 'a "quoted" $HOME', "back\\slash `x`"])
def test_menu_entry_finds_a_program_under_any_path(machine: Machine, name: str) -> None:
    prefix = machine.home / name
    done = machine.run("--prefix", str(prefix))
    assert done.returncode == 0, done.stderr
    entry = desktop_entry(prefix / "share/applications/quire.desktop")
    assert command_of(entry["Exec"]) == [str(prefix / "lib/quire/quire")]


@on_linux
def test_newer_version_replaces_the_program_and_keeps_the_chats(machine: Machine) -> None:
    machine.unpack("one", "only-in-one.so")
    machine.run()
    chats = machine.chat()
    machine.unpack("two", "only-in-two.so")
    done = machine.run()
    assert done.returncode == 0, done.stderr
    program = machine.home / ".local/lib/quire"
    assert subprocess.check_output(program / "quire", text=True) == "two\n"
    assert [path.name for path in (program / "_internal").iterdir()] == ["only-in-two.so"]
    assert chats.read_bytes() == b"chats"
    assert [path.name for path in program.parent.iterdir()] == ["quire"]


@on_linux
def test_uninstalling_keeps_the_chats(machine: Machine) -> None:
    machine.run()
    chats = machine.chat()
    (machine.home / f".cache/{APP_NAME}/triton").mkdir(parents=True)
    (machine.home / f".cache/{APP_NAME}/triton/kernel").write_text("compiled")
    done = machine.run("--uninstall", script=machine.home / ".local/lib/quire/install.sh")
    assert done.returncode == 0, done.stderr
    assert machine.installed() == {chats.relative_to(machine.home).as_posix()}
    assert str(machine.home / DATA_FOLDER) in done.stdout


@on_linux
def test_uninstalling_removes_the_chats_when_asked(machine: Machine) -> None:
    machine.run()
    machine.chat()
    done = machine.run("--uninstall", "--remove-data")
    assert done.returncode == 0, done.stderr
    assert machine.installed() == set()


@on_linux
def test_program_remembers_where_it_was_installed(machine: Machine) -> None:
    prefix = machine.home / "elsewhere"
    machine.run("--prefix", "elsewhere")
    done = machine.run("--uninstall", script=prefix / "lib/quire/install.sh")
    assert done.returncode == 0, done.stderr
    assert machine.installed() == set()


@pytest.mark.frozen
@pytest.mark.timeout(900)
@on_linux
@pytest.mark.skipif(not BUNDLE.is_dir(), reason=f"no build in {BUNDLE}: run dev.py build")
def test_build_is_installed_starts_and_is_removed(machine: Machine) -> None:
    done = machine.run(script=BUNDLE / "install.sh")
    assert done.returncode == 0, done.stderr
    chats = machine.chat()
    (command,) = command_of(
        desktop_entry(machine.home / ".local/share/applications/quire.desktop")["Exec"]
    )
    env = {"HOME": str(machine.home), "QT_QPA_PLATFORM": "offscreen", "LANG": "C.UTF-8"}
    report = machine.home / "report.json"
    arguments = ["--self-test", "--tabs", "2", "--json", str(report)]
    subprocess.run([command, *arguments], env=env, cwd=machine.home, check=False, timeout=600)
    answers = json.loads(report.read_text(encoding="utf-8"))
    assert [bool(tab["text"]) for tab in answers["tabs"]] == [True, True]
    done = machine.run("--uninstall", script=machine.home / ".local/lib/quire/install.sh")
    assert done.returncode == 0, done.stderr
    assert not (machine.home / ".local/lib/quire").exists()
    assert chats.read_bytes() == b"chats"


@on_linux
@pytest.mark.parametrize("action", [(), ("--uninstall",)])
def test_program_that_is_open_is_left_alone(machine: Machine, action: tuple[str, ...]) -> None:
    machine.run()
    program = machine.home / ".local/lib/quire/quire"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as process:
        try:
            done = machine.run(*action)
        finally:
            process.kill()
    assert done.returncode == 1
    assert "Quire is open" in done.stderr
    assert program.is_file()


@on_linux
def test_script_without_its_program_says_what_to_do(machine: Machine) -> None:
    (machine.unpacked / "quire").unlink()
    done = machine.run()
    assert done.returncode == 1
    assert "unpack the whole archive" in done.stderr
    assert machine.installed() == set()


@on_linux
@pytest.mark.parametrize("arguments", [["--purge"], ["--prefix"], ["--remove-data"]])
def test_arguments_that_make_no_sense_change_nothing(
    machine: Machine, arguments: list[str]
) -> None:
    assert machine.run(*arguments).returncode == 2
    assert machine.installed() == set()


def test_files_of_the_archive_are_there() -> None:
    assert all((FOLDER / name).is_file() for name in desktop_files._FILES)
