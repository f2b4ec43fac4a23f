"""The Windows build, as far as it can be tried without Windows."""

from __future__ import annotations

import re
import runpy
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from PySide6.QtGui import QImageReader
from PySide6.QtSvg import QSvgRenderer

import icons
import spec_common
import windows_installer
import windows_resources
from app import versions
from app.paths import APP_NAME
from problem import Problem

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packaging"
assert QSvgRenderer is not None  # loaded before any test takes this for Windows


# --- the specification ----------------------------------------------------------------------------


class Evaluated:
    """A specification run as PyInstaller does, with its classes recording what they are given."""

    def __init__(self, spec: Path) -> None:
        self.calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        names = {name: self._recorder(name) for name in ("Analysis", "PYZ", "EXE", "COLLECT")}
        runpy.run_path(str(spec), init_globals={**names, "SPECPATH": str(FOLDER)})

    def _recorder(self, name: str) -> Any:
        def record(*arguments: Any, **keywords: Any) -> Any:
            self.calls[name] = (arguments, keywords)
            kept = ("torch.nn", "torch/nn/__init__.py", "PYMODULE")
            dropped = ("torch/include/x.h", "x.h", "DATA")
            return SimpleNamespace(pure=[kept], scripts=["s"], binaries=[], datas=[dropped])

        return record


@pytest.fixture
def as_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hooks = ModuleType("PyInstaller.utils.hooks")
    hooks.collect_data_files = lambda name: [(f"{name}.data", name)]  # type: ignore[attr-defined]
    hooks.collect_submodules = lambda name, filter: [name]  # type: ignore[attr-defined]
    hooks.copy_metadata = lambda name: [(f"{name}.dist-info", ".")]  # type: ignore[attr-defined]
    for name in ("PyInstaller", "PyInstaller.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "PyInstaller.utils.hooks", hooks)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(spec_common, "ROOT", tmp_path)
    monkeypatch.setenv("QUIRE_STARTER_GGUF", "C:\\models\\starter.gguf")
    monkeypatch.setenv("QUIRE_VARIANT", "cpu")


@pytest.fixture
def evaluated(as_on_windows: None) -> Evaluated:
    return Evaluated(FOLDER / "windows.spec")


def test_specification_carries_model_and_resources(evaluated: Evaluated) -> None:
    _arguments, keywords = evaluated.calls["Analysis"]
    places = dict(keywords["datas"])
    assert places["C:\\models\\starter.gguf"] == spec_common.STARTER_FOLDER
    assert "resources" in places.values()
    assert "triton" in keywords["excludes"]


def test_program_has_a_window_and_no_console(evaluated: Evaluated) -> None:
    _arguments, keywords = evaluated.calls["EXE"]
    assert keywords["console"] is False
    assert keywords["upx"] is False
    assert keywords["name"] == "quire"


def test_program_has_icon_version_and_manifest(evaluated: Evaluated) -> None:
    _arguments, keywords = evaluated.calls["EXE"]
    for name in ("icon", "version", "manifest"):
        assert Path(keywords[name]).is_file(), name


def test_program_reads_and_writes_utf_8(evaluated: Evaluated) -> None:
    arguments, _keywords = evaluated.calls["EXE"]
    assert [("X utf8", None, "OPTION")] in arguments


def test_what_is_not_used_is_left_out(evaluated: Evaluated) -> None:
    (_executable, _binaries, datas), keywords = evaluated.calls["COLLECT"]
    assert datas == []
    assert keywords["upx"] is False


def test_both_specifications_give_the_same_analysis(
    as_on_windows: None, evaluated: Evaluated
) -> None:
    assert Evaluated(FOLDER / "linux.spec").calls["Analysis"] == evaluated.calls["Analysis"]


# --- resources of the executable ------------------------------------------------------------------


def test_icon_has_each_size_that_windows_asks_for(tmp_path: Path) -> None:
    reader = QImageReader(str(icons.write_ico(tmp_path / "quire.ico")))
    sizes = []
    for number in range(reader.imageCount()):
        assert reader.jumpToImage(number)
        sizes.append(reader.read().width())
    assert tuple(sizes) == icons.ICO_SIZES


def test_directory_of_the_icon_points_at_its_pictures() -> None:
    pictures = [(16, b"small"), (256, b"a large one")]
    data = icons.ico(pictures)
    assert struct.unpack_from("<HHH", data) == (0, 1, 2)
    for number, (size, picture) in enumerate(pictures):
        entry = struct.unpack_from("<BBBBHHII", data, 6 + 16 * number)
        assert entry[:2] == (size % 256, size % 256)
        length, place = entry[6:]
        assert data[place : place + length] == picture


def test_version_is_the_same_everywhere() -> None:
    assert windows_resources.version() == versions.VERSION


@pytest.mark.parametrize(
    ("stated", "numbers"),
    [("1.2.3", (1, 2, 3, 0)), ("0.1", (0, 1, 0, 0)), ("10.0.2rc1", (10, 0, 2, 0))],
)
def test_version_in_numbers(stated: str, numbers: tuple[int, ...]) -> None:
    assert windows_resources.version_numbers(stated) == numbers


def test_version_resource_says_what_windows_shows() -> None:
    names = ("VSVersionInfo", "FixedFileInfo", "StringFileInfo", "StringTable", "StringStruct")
    strings: dict[str, str] = {}
    fixed: dict[str, Any] = {}
    makers: dict[str, Any] = defaultdict(lambda: lambda *_a, **_k: None)
    makers |= {name: lambda *_a, **_k: None for name in (*names, "VarFileInfo", "VarStruct")}
    makers["StringStruct"] = lambda name, value: strings.update({name: value})
    makers["FixedFileInfo"] = lambda **keywords: fixed.update(keywords)
    # PyInstaller evaluates it in this way, on Windows only.
    eval(windows_resources.version_resource("1.2.3rc1"), dict(makers))
    assert strings["ProductName"] == APP_NAME
    assert strings["FileVersion"] == strings["ProductVersion"] == "1.2.3rc1"
    assert strings["OriginalFilename"] == "quire.exe"
    assert fixed["filevers"] == (1, 2, 3, 0)


def test_manifest_asks_for_long_paths_utf_8_and_sharp_text() -> None:
    root = ElementTree.parse(windows_resources.MANIFEST).getroot()
    settings = {e.tag.rpartition("}")[2]: (e.text or "") for e in root.iter()}
    assert settings["longPathAware"] == "true"
    assert settings["activeCodePage"] == "UTF-8"
    assert settings["dpiAwareness"].split(", ")[0] == "PerMonitorV2"
    levels = [e.get("level") for e in root.iter() if e.tag.endswith("requestedExecutionLevel")]
    assert levels == ["asInvoker"]


def test_manifest_says_windows_10_and_modern_controls() -> None:
    text = windows_resources.MANIFEST.read_text(encoding="utf-8")
    assert "{8e0f7a12-bfb3-4fe8-b9a5-48fd50a15a9a}" in text
    assert 'name="Microsoft.Windows.Common-Controls" version="6.0.0.0"' in text


# --- the installer --------------------------------------------------------------------------------


def sections() -> dict[str, list[str]]:
    """The lines of each section of the script, without comments."""
    found: dict[str, list[str]] = defaultdict(list)
    name = ""
    for line in windows_installer.SCRIPT.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            name = match[1]
        elif line.strip() and not line.startswith((";", "//")):
            found[name].append(line)
    return found


def setup() -> dict[str, str]:
    return dict(line.split("=", 1) for line in sections()["Setup"])


def test_installer_is_told_everything_that_its_script_asks_for() -> None:
    text = windows_installer.SCRIPT.read_text(encoding="utf-8")
    asked = set(re.findall(r"\{#(\w+)\}", text))
    values = windows_installer.values(
        Path("dist/quire"), "1.2.3rc1", "cpu", Path("dist"), Path("i")
    )
    assert asked <= set(values)
    assert values["AppNumbers"] == "1.2.3.0"


def test_program_keeps_its_identity_over_versions() -> None:
    # With another one an upgrade would stand beside the old version instead of replacing it.
    assert setup()["AppId"] == "{{6D0C4B5E-3C1B-4B7E-9F67-0B1A7C6E52D4}"


def test_installing_needs_no_administrator() -> None:
    assert setup()["PrivilegesRequired"] == "lowest"


def test_installer_replaces_the_old_program_whole() -> None:
    assert sections()["InstallDelete"] == ['Type: filesandordirs; Name: "{app}\\_internal"']
    assert setup()["CloseApplications"] == "yes"


def test_installer_writes_into_the_programs_folder_alone() -> None:
    (line,) = sections()["Files"]
    assert 'DestDir: "{app}"' in line
    assert setup()["DefaultDirName"] == "{autopf}\\Quire"


def test_uninstaller_takes_the_cache_along_and_nothing_else_unasked() -> None:
    # platformdirs' place for this user's caches.
    assert sections()["UninstallDelete"] == [
        f'Type: filesandordirs; Name: "{{localappdata}}\\{APP_NAME}\\Cache"'
    ]


def test_uninstaller_asks_about_the_folder_that_the_program_uses() -> None:
    # platformdirs' place for this user: LOCALAPPDATA\Quire.
    code = "\n".join(sections()["Code"])
    assert f"ExpandConstant('{{localappdata}}\\{APP_NAME}')" in code
    assert code.count("DelTree(") == 1


def test_uninstaller_keeps_the_chats_unless_asked() -> None:
    code = "\n".join(sections()["Code"])
    assert "MB_YESNO or MB_DEFBUTTON2" in code
    assert "not UninstallSilent" in code
    assert re.search(r"DirExists\(Folder\) and RemoveDataWasAsked\(Folder\) then\s+DelTree", code)


def test_missing_inno_setup_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("ProgramFiles(x86)", "ProgramFiles", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert windows_installer.make_installer(tmp_path, "1.0", "cpu", tmp_path) is None
    assert "Install Inno Setup 6" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["Inno Setup 6", "Programs/Inno Setup 6"])
def test_inno_setup_is_found_where_it_installs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("PATH", "")
    compiler = tmp_path / place / windows_installer.COMPILER
    compiler.parent.mkdir(parents=True)
    compiler.touch()
    assert windows_installer.find_compiler({"ProgramFiles": str(tmp_path)}) == compiler


@pytest.mark.parametrize("status", [0, 2])
def test_installer_is_made_by_inno_setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    called: list[list[str]] = []

    def call(command: list[str]) -> int:
        called.append(command)
        return status

    monkeypatch.setattr(windows_installer, "find_compiler", lambda environ: Path("ISCC.exe"))
    monkeypatch.setattr(subprocess, "call", call)
    out = tmp_path / "dist"
    if status:
        with pytest.raises(Problem, match="status 2"):
            windows_installer.make_installer(out / "quire", "1.2.3", "cpu", out)
    else:
        made = windows_installer.make_installer(out / "quire", "1.2.3", "cpu", out)
        assert made == out / f"{setup_name('1.2.3', 'cpu')}.exe"
    ((compiler, *_options, script),) = called
    assert (compiler, script) == ("ISCC.exe", str(windows_installer.SCRIPT))
    assert f"/DSourceDir={out / 'quire'}" in called[0]


def setup_name(version: str, variant: str) -> str:
    """The file name that the script gives its installer."""
    name = setup()["OutputBaseFilename"]
    return name.replace("{#AppVersion}", version).replace("{#Variant}", variant)
