"""What the build keeps, drops and counts; the frozen program itself is tried by `dev.py build`."""

from __future__ import annotations

from pathlib import Path

import pytest

import build
import spec_common

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "destination",
    [
        "torch/bin/torch_shm_manager",
        "torch\\bin\\torch_shm_manager.exe",
        "torch/lib/libtorch_cpu.so",
        "torch/testing/_internal/common_dtype.py",
        "torch/testing/_internal/logging_tensor.py",
        "torch/testing/_comparison.py",
        "PySide6/Qt/plugins/platforms/libqxcb.so",
        "PySide6/Qt/plugins/platforms/libqwayland.so",
        "PySide6/Qt/plugins/platforms/libqoffscreen.so",
        "PySide6/Qt/plugins/imageformats/libqsvg.so",
        "PySide6/Qt/translations/qtbase_zh_CN.qm",
        "resources/translations/zh_CN.qm",
        "starter/model.gguf",
    ],
)
def test_needed_file_is_kept(destination: str) -> None:
    assert spec_common.kept(destination)


@pytest.mark.parametrize(
    "destination",
    [
        "torch/include/ATen/ATen.h",
        "torch/testing/_internal/common_utils.py",
        "PySide6/Qt/qml/QtQuick/qmldir",
        "PySide6\\qml\\QtQuick\\qmldir",
        "PySide6/Qt/lib/libQt6Quick.so.6",
        "PySide6/Qt/translations/qtbase_fr.qm",
        "PySide6/Qt/translations/designer_zh_CN.qm",
    ],
)
def test_unused_file_is_dropped(destination: str) -> None:
    assert not spec_common.kept(destination)


@pytest.mark.parametrize(
    ("module", "file_name", "place"),
    [
        ("torch", "__init__.py", "torch/__init__.py"),
        ("torch.testing._internal", "__init__.py", "torch/testing/_internal/__init__.py"),
        ("torch.testing._internal.dist", "dist.py", "torch/testing/_internal/dist.py"),
        ("six", "six.py", "six.py"),
    ],
)
def test_place_of_a_module(module: str, file_name: str, place: str) -> None:
    assert spec_common.source_name(module, file_name) == place


def test_engine_finds_the_model_where_the_bundle_has_it() -> None:
    source = (ROOT / "engine" / "loading" / "starter_model.py").read_text(encoding="utf-8")
    assert f'"{spec_common.STARTER_FOLDER}"' in source


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("_internal/torch/lib/libtorch_cpu.so", "torch"),
        ("_internal/numpy.libs/libopenblas.so", "numpy"),
        ("_internal/shiboken6/x.so", "PySide6"),
        ("_internal/gguf-0.19.0.dist-info/METADATA", "package metadata"),
        ("_internal/libpython3.11.so.1.0", "Python and system libraries"),
        ("_internal/lib-dynload/_ssl.so", "Python and system libraries"),
        ("quire", "Python and system libraries"),
    ],
)
def test_component_of_a_file(path: str, name: str) -> None:
    assert build.component(Path(path)) == name


def test_sizes_add_up(tmp_path: Path) -> None:
    for name, size in {"quire": 5, "_internal/torch/a": 7, "_internal/torch/b/c": 11}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    assert build.sizes(tmp_path) == {"torch": 18, "Python and system libraries": 5}


def test_frozen_program_is_tried_away_from_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("QUIRE_MODELS_DIR", "somewhere")
    env = build.clean_environment(tmp_path)
    assert "PYTHONPATH" not in env
    assert "QUIRE_MODELS_DIR" not in env
    assert env["HOME"] == env["LOCALAPPDATA"] == str(tmp_path)
