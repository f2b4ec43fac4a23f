"""The licences of a bundle: every file has an owner, every owner a text, or the build fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

import licences
import system_packages
from app import versions
from licences import Owner
from problem import Problem

ROOT = Path(__file__).resolve().parents[2]


def source_of(name: str, file: str) -> str:
    """The path of a file of an installed distribution."""
    return str(metadata.distribution(name).locate_file(file))


@pytest.mark.parametrize(
    ("source", "owner"),
    [
        (numpy.__file__, Owner("distribution", "numpy")),
        (os.__file__, Owner("python", "Python")),
        (str(ROOT / "resources" / "icons" / "quire.svg"), Owner("quire", "quire")),
        ("/models/any.gguf", Owner("quire", "quire")),
        ("/no/such/libstrange.so.1", Owner("unknown", "/no/such/libstrange.so.1")),
    ],
)
def test_owner_of_a_file(source: str, owner: Owner) -> None:
    assert licences.owners([source]) == {owner}


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="no Debian package")
def test_owner_of_a_library_of_the_system() -> None:
    library = "/usr/lib/x86_64-linux-gnu/libz.so.1"
    if not Path(library).exists():
        pytest.skip("no zlib in its usual place")
    assert licences.owners([library]) == {Owner("system", "zlib1g")}


@pytest.fixture
def bootloader(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyInstaller is installed where the program is built, and not where it is tested."""
    found = ("6.0", "GPL-2.0-or-later with an exception", "The text.")
    monkeypatch.setattr(licences, "_bootloader_licence", lambda: found)


def test_collected_licences_are_what_about_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bootloader: None
) -> None:
    target = tmp_path / licences.FOLDER
    licences.collect([numpy.__file__, source_of("shiboken6", "shiboken6/__init__.py")], target)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    shown = {library.name: library for library in versions.libraries()}
    assert list(shown) == [
        "Python",
        "PyInstaller bootloader",
        licences.MODEL_NAME,
        "numpy",
        "shiboken6",
    ]
    assert shown["numpy"].version == numpy.__version__
    # The wheel's own text names the Fortran library that is compiled into it.
    assert "gfortran" in shown["numpy"].text()
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in shown["shiboken6"].text()
    assert "GNU GENERAL PUBLIC LICENSE" in shown["shiboken6"].text()
    assert "may be replaced" in shown["shiboken6"].text()
    assert "PSF LICENSE" in shown["Python"].text().upper()
    assert "Apache License" in shown[licences.MODEL_NAME].text()


def test_a_file_without_an_owner_fails_the_build(tmp_path: Path, bootloader: None) -> None:
    with pytest.raises(Problem, match=r"1 parts of the bundle: /no/such/libstrange\.so\.1"):
        licences.collect(["/no/such/libstrange.so.1"], tmp_path)


def test_what_is_compiled_into_a_wheel_is_named() -> None:
    found = licences.distribution_licence(metadata.distribution("tokenizers"))
    assert found is not None
    _version, licence, text = found
    assert "Apache" in licence
    assert re.search(r"^serde_json \S+: MIT OR Apache-2.0$", text, re.MULTILINE)


def test_every_dependency_of_the_application_has_a_text() -> None:
    for name in versions.DEPENDENCIES:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found = licences.distribution_licence(distribution)
        assert found is not None, name
        assert found[1], name
        assert len(found[2]) > 500, name


def test_standard_texts_are_whole() -> None:
    for name, last_words in (
        ("LGPL-3.0-only", "choose that version for the\nLibrary."),
        ("GPL-3.0-only", "why-not-lgpl.html>."),
        ("Apache-2.0", "limitations under the License."),
        ("MIT", "THE USE OR OTHER DEALINGS IN THE SOFTWARE."),
    ):
        text = (licences.TEXTS / f"{name}.txt").read_text(encoding="utf-8")
        assert text.rstrip().endswith(last_words), name


def test_texts_that_debian_only_points_to_come_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/usr/share/common-licenses/LGPL-2.1").is_file():
        pytest.skip("no Debian")
    common = system_packages.common_texts("see /usr/share/common-licenses/LGPL-2.1.\n")
    assert len(common) == 1
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in common[0]


def test_a_program_whose_licences_are_gone_shows_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    assert versions.libraries() == []
    (tmp_path / "licences").mkdir()
    (tmp_path / "licences" / "index.json").write_text(json.dumps([{"name": "x"}]))
    assert versions.libraries() == []


def test_python_of_the_build_has_its_licence() -> None:
    version, licence, text = licences._python_licence()
    assert version.startswith(sysconfig.get_python_version())
    assert licence == "PSF-2.0"
    assert "PYTHON SOFTWARE FOUNDATION" in text


@pytest.mark.parametrize(
    ("tool", "answer"),
    [
        ("dpkg", "zlib1g:amd64: /lib/x86_64-linux-gnu/libz.so.1\n"),
        ("rpm", "zlib1g\n"),
        ("pacman", "zlib1g\n"),
    ],
)
def test_package_of_a_library_on_several_systems(
    tool: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_options: object) -> SimpleNamespace:
        assert command[0] == tool
        return SimpleNamespace(returncode=0, stdout=answer)

    monkeypatch.setattr(system_packages.sys, "platform", "linux")
    monkeypatch.setattr(
        system_packages.shutil, "which", lambda name: name if name.startswith(tool) else None
    )
    monkeypatch.setattr(system_packages.subprocess, "run", run)
    library = Path("/usr/lib/x86_64-linux-gnu/libz.so.1")
    assert system_packages.packages_of([library]) == {library: "zlib1g"}


def test_runtime_of_windows_has_its_terms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_packages.sys, "platform", "win32")
    monkeypatch.setenv("SYSTEMROOT", str(tmp_path))
    library = tmp_path / "System32" / "msvcp140.dll"
    strange = tmp_path.parent / "strange.dll"
    found_packages = system_packages.packages_of([library, strange])
    assert found_packages == {library: system_packages.MICROSOFT}
    found = system_packages.package_licence(system_packages.MICROSOFT)
    assert found is not None
    assert "distributable code" in found[2]


def test_a_package_without_its_documentation_has_no_licence() -> None:
    assert system_packages.package_licence("no-such-package-here") is None
