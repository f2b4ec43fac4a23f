"""What Qt lacks on Linux is found with ldd and named with its Debian package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import qt_libraries
from problem import Problem

LDD = """\
/qt/plugins/platforms/libqxcb.so:
\tlinux-vdso.so.1 (0x00007ffd2b5f2000)
\tlibQt6XcbQpa.so.6 => /qt/lib/libQt6XcbQpa.so.6 (0x00007f1e6a000000)
\tlibxcb-keysyms.so.1 => not found
\tlibxcb-icccm.so.4 => not found
/qt/lib/libQt6XcbQpa.so.6:
\tlibxcb-icccm.so.4 => not found
\tlibstrange.so.9 => not found
"""


def test_ldd_output_is_read() -> None:
    expected = ["libstrange.so.9", "libxcb-icccm.so.4", "libxcb-keysyms.so.1"]
    assert qt_libraries.parse_missing(LDD) == expected


def test_complete_system_lacks_nothing() -> None:
    assert qt_libraries.parse_missing("\tlibc.so.6 => /lib/libc.so.6 (0x00007f1e6a000000)\n") == []


def test_message_names_packages_and_what_has_none() -> None:
    problem = qt_libraries.libraries_problem("xcb", qt_libraries.parse_missing(LDD))
    assert "lacks 3 system libraries" in problem.cause
    assert "`sudo apt install libxcb-icccm4 libxcb-keysyms1`" in problem.action
    assert "libstrange.so.9" in problem.action


def test_one_library_is_singular() -> None:
    assert "1 system library:" in qt_libraries.libraries_problem("xcb", ["libEGL.so.1"]).cause


@pytest.mark.parametrize(
    ("environ", "platform"),
    [
        ({}, ""),
        ({"DISPLAY": ":0"}, "xcb"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "wayland"),
        ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, "xcb"),
        (
            {"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0", "XDG_SESSION_TYPE": "wayland"},
            "wayland",
        ),
        ({"QT_QPA_PLATFORM": "offscreen"}, "offscreen"),
        ({"QT_QPA_PLATFORM": "wayland;xcb"}, "wayland"),
        ({"QT_QPA_PLATFORM": "offscreen:configfile=x"}, "offscreen"),
    ],
)
def test_platform(environ: dict[str, str], platform: str) -> None:
    assert qt_libraries.platform_of(environ) == platform


def test_no_display_is_explained() -> None:
    with pytest.raises(Problem) as caught:
        qt_libraries.check_display({})
    assert "DISPLAY" in caught.value.cause
    assert "xvfb-run" in caught.value.action
    qt_libraries.check_display({"QT_QPA_PLATFORM": "offscreen"})


@pytest.mark.skipif(sys.platform != "linux", reason="ldd")
def test_installed_qt_has_what_the_tests_need() -> None:
    import PySide6

    folder = Path(PySide6.__file__).parent / "Qt"
    for group in (qt_libraries.COMMON_FILES, *qt_libraries.PLATFORM_FILES.values()):
        assert all((folder / name).exists() for name in group), group
    assert qt_libraries.missing_libraries(folder, "offscreen") == []


def test_users_system_is_never_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_keywords: object) -> int:
        raise AssertionError("apt-get was started")

    monkeypatch.setattr(qt_libraries.subprocess, "call", refuse)
    monkeypatch.setattr(qt_libraries.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(qt_libraries.os, "geteuid", lambda: 1000, raising=False)
    assert qt_libraries.install_on_debian(["libegl1"]) is False
