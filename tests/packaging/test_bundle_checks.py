"""A bundle that lacks something fails the build, and the message names it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bundle_checks
from problem import Problem

elf = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("gcc") or not shutil.which("ldd"),
    reason="makes libraries with gcc",
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A folder with a file for each pattern, none of them a library."""
    for pattern in (bundle_checks.COMMON_FILES | bundle_checks.LINUX_FILES).values():
        path = tmp_path / bundle_checks.INTERNAL / pattern.replace("*", "x")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def library(folder: Path, name: str, *needs: str) -> Path:
    """Compiles an empty library that needs others of the same folder."""
    made = folder / name
    made.parent.mkdir(parents=True, exist_ok=True)
    source = folder / "empty.c"
    source.write_text("typedef int nothing;\n")
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{made.name}", "-o", str(made), str(source)]
    command += ["-Wl,--no-as-needed", f"-L{folder}", *(f"-l:{need}" for need in needs)]
    subprocess.check_call(command)
    source.unlink()
    return made


@pytest.mark.parametrize(
    ("pattern", "use"),
    [
        ("platforms/libqxcb.so", "X11"),
        ("platforms/libqwaylandx.so", "Wayland"),
        ("platforminputcontexts/libibusx.so", "Chinese input through ibus"),
        ("imageformats/libqsvg.so", "SVG pictures"),
        ("iconengines/libqsvgicon.so", "SVG icons"),
    ],
)
def test_a_plugin_that_is_missing_is_named(bundle: Path, pattern: str, use: str) -> None:
    internal = bundle / bundle_checks.INTERNAL
    assert bundle_checks.missing_files(internal, "linux") == []
    (internal / "PySide6/Qt/plugins" / pattern).unlink()
    assert bundle_checks.missing_files(internal, "linux") == [use]
    with pytest.raises(Problem, match=f"lacks files for {use}"):
        bundle_checks.check_bundle(bundle, "linux")


def test_windows_has_plugins_of_its_own(bundle: Path) -> None:
    missing = bundle_checks.missing_files(bundle / bundle_checks.INTERNAL, "win32")
    assert sorted(missing) == sorted(bundle_checks.WINDOWS_FILES)


@elf
def test_complete_libraries_pass(tmp_path: Path) -> None:
    library(tmp_path, "libinner.so.1")
    library(tmp_path, "libouter.so", "libinner.so.1")
    assert bundle_checks.dependencies(tmp_path) == ({}, {})
    bundle_checks.check_libraries(tmp_path)


@elf
def test_an_unresolved_library_fails_the_build(tmp_path: Path) -> None:
    inner = library(tmp_path, "libinner.so.1")
    library(tmp_path, "plugins.so", "libinner.so.1")
    inner.unlink()
    assert bundle_checks.dependencies(tmp_path) == ({"libinner.so.1": ["plugins.so"]}, {})
    with pytest.raises(Problem, match=r"were not found: libinner\.so\.1 \(for plugins\.so\)"):
        bundle_checks.check_libraries(tmp_path)


@elf
def test_a_library_that_only_this_machine_has_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = library(tmp_path / "elsewhere", "libforeign.so.1")
    internal = tmp_path / "internal"
    made = internal / "plugin.so"
    internal.mkdir()
    source = tmp_path / "empty.c"
    source.write_text("typedef int nothing;\n")
    command = ["gcc", "-shared", "-fPIC", "-o", str(made), str(source), "-Wl,--no-as-needed"]
    command += [f"-L{foreign.parent}", f"-Wl,-rpath,{foreign.parent}", "-l:libforeign.so.1"]
    subprocess.check_call(command)
    assert bundle_checks.dependencies(internal) == ({}, {"libforeign.so.1": ["plugin.so"]})
    with pytest.raises(Problem, match="come from this machine and are not in the bundle"):
        bundle_checks.check_libraries(internal)


@pytest.mark.parametrize("name", ["libc.so.6", "libGL.so.1", "libwayland-client.so.0"])
def test_what_every_desktop_has_need_not_be_there(name: str) -> None:
    assert bundle_checks.is_host_library(name)


@pytest.mark.parametrize("name", ["libQt6Core.so.6", "libxcb-cursor.so.0", "libglib-2.0.so.0"])
def test_what_a_desktop_may_lack_must_be_there(name: str) -> None:
    assert not bundle_checks.is_host_library(name)


@elf
def test_sqlite_without_full_text_search_is_found_out(tmp_path: Path) -> None:
    assert not bundle_checks.has_full_text_search(tmp_path)
    source = tmp_path / "fake.c"
    for answer in (0, 1):
        source.write_text(
            f"int sqlite3_compileoption_used(const char *name) {{ return {answer}; }}\n"
        )
        made = tmp_path / f"{answer}" / "libsqlite3.so.0"
        made.parent.mkdir()
        subprocess.check_call(["gcc", "-shared", "-fPIC", "-o", str(made), str(source)])
        assert bundle_checks.has_full_text_search(made.parent) is bool(answer)
