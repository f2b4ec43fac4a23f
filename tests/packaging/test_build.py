"""What the build keeps, drops and counts; the frozen program itself is tried by `dev.py build`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

import build
import sizes
import spec_common
from engine import shipped_triton
from problem import Problem

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
        "resources/icons/quire.svg",
        "triton/backends/nvidia/bin/ptxas",
        "triton/backends/nvidia/lib/libdevice.10.bc",
        "triton/_C/libtriton.so",
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
        "PySide6/Qt/plugins/platformthemes/libqgtk3.so",
        "PySide6/Qt/plugins/tls/libqopensslbackend.so",
        "PySide6/Qt/lib/libQt6EglFsKmsSupport.so.6",
        "libQt6EglFSDeviceIntegration.so.6",
        "libwayland-client.so.0",
        "resources/screenshots/main-dark.png",
        "triton/backends/nvidia/bin/nvdisasm",
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


def test_licences_of_what_is_installed_are_carried_along(tmp_path: Path) -> None:
    carried = spec_common.installed(spec_common.REQUIREMENTS)
    assert {"gguf", "PySide6-Essentials", "torch"} <= set(carried)
    other = tmp_path / "requirements.txt"
    other.write_text("# numpy==1\nnumpy==2.4.6  # why\nno-such-thing==1; sys_platform == 'x'\n")
    assert spec_common.installed(other) == ["numpy"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("_internal/torch/lib/libtorch_cpu.so", "torch"),
        ("_internal/numpy.libs/libopenblas.so", "numpy"),
        ("_internal/shiboken6/x.so", "PySide6"),
        ("_internal/gguf-0.19.0.dist-info/METADATA", sizes.METADATA),
        ("_internal/libpython3.11.so.1.0", sizes.SYSTEM),
        ("_internal/lib-dynload/_ssl.so", sizes.SYSTEM),
        ("_internal/python3.11/lib-dynload/_ssl.so", sizes.SYSTEM),
        ("quire", sizes.PROGRAM),
    ],
)
def test_component_of_a_file(path: str, name: str) -> None:
    assert sizes.component(Path(path)) == name


def test_sizes_add_up(tmp_path: Path) -> None:
    for name, size in {"quire": 5, "_internal/torch/a": 7, "_internal/torch/b/c": 11}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    assert sizes.sizes(tmp_path) == {"torch": 18, sizes.PROGRAM: 5}


def test_table_tells_what_is_over_its_budget() -> None:
    weights = Counter({"torch": 500_000_000, "numpy": 40_000_000, "yaml": 2_000_000})
    lines = sizes.table(weights, spec_common.CPU)
    assert lines[0].split() == ["500.0", "of", "430", "MB", "torch", "OVER"]
    assert lines[1].split() == ["40.0", "of", "50", "MB", "numpy"]
    assert lines[-2].split() == ["2.0", "of", "20", "MB", "everything", "else"]
    assert lines[-1].split() == ["542.0", "of", "900", "MB", "in", "all"]


def test_budget_is_in_decimal_megabytes() -> None:
    assert sizes.is_within_budget(900_000_000, 900)
    assert not sizes.is_within_budget(900_000_001, 900)


def test_parts_of_the_budget_do_not_exceed_it() -> None:
    parts = sum(sizes.COMPONENT_BUDGET_MB.values()) + sizes.OTHERS_MB
    assert parts <= sizes.BUDGET_MB[spec_common.CPU]


# --- variants ---


def test_variant_is_what_the_installed_torch_is_for() -> None:
    import torch

    possible = "cpu" if torch.version.cuda is None else "cuda"
    other = {"cpu": "cuda", "cuda": "cpu"}[possible]
    assert build.chosen_variant("auto") == build.chosen_variant(possible) == possible
    with pytest.raises(Problem, match=f"The {other} variant was asked for, but torch") as caught:
        build.chosen_variant(other)
    assert "--torch-index" in caught.value.action


def test_cpu_variant_leaves_triton_out() -> None:
    assert "triton" in spec_common.excluded_modules("cpu")
    assert "triton" not in spec_common.excluded_modules("cuda")
    assert spec_common.triton_distributions("cpu") == []
    assert not spec_common.is_without_triton("triton-windows")
    assert not spec_common.is_without_triton("engine.attention.paged_triton")
    assert spec_common.is_without_triton("torch")
    pytest.importorskip("triton")
    assert spec_common.triton_distributions("cuda") in (["triton"], ["triton-windows"])


def test_cuda_variant_carries_headers_and_what_was_made_for_triton(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(spec_common.TRITON_PARTS_VARIABLE, raising=False)
    (include, place), *rest = spec_common.triton_data()
    assert Path(include, "Python.h").is_file()
    assert place.startswith("include/")
    assert rest == []
    monkeypatch.setenv(spec_common.TRITON_PARTS_VARIABLE, "made")
    assert spec_common.triton_data()[1] == ("made", shipped_triton.FOLDER)


def test_variant_is_chosen_on_the_command_line() -> None:
    options = build.parser().parse_args([])
    assert (options.variant, options.archive) == ("auto", True)
    options = build.parser().parse_args(["--variant", "cuda", "--no-archive"])
    assert (options.variant, options.archive) == ("cuda", False)


# --- what goes with what is dropped ---


@pytest.mark.skipif(sys.platform != "linux", reason="ldd")
def test_libraries_that_only_dropped_files_need_are_dropped() -> None:
    import _ctypes

    module = _ctypes.__file__
    needed = next(
        line.split()[0]
        for line in subprocess.check_output(["ldd", module], text=True).splitlines()
        if "libffi" in line
    )
    binaries = [
        ("python3.11/lib-dynload/_ctypes.so", module, "EXTENSION"),
        (needed, "/usr/lib/x", "BINARY"),
        ("libgtk-3.so.0", "/usr/lib/y", "BINARY"),
        ("libpython3.11.so.1.0", "/usr/lib/z", "BINARY"),
    ]
    kept = [entry[0] for entry in spec_common.without_orphans(binaries)]
    assert kept == [binaries[0][0], needed, "libpython3.11.so.1.0"]


def test_sources_are_written_for_the_licences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "sources.json"
    monkeypatch.setenv(spec_common.SOURCES_VARIABLE, str(place))
    analysis = SimpleNamespace(
        pure=[("yaml", "/s/yaml/__init__.py", "PYMODULE")],
        binaries=[],
        datas=[("resources/a", "/s/a", "DATA"), ("torch/test/b", "/s/b", "DATA")],
    )
    spec_common.trim(analysis)
    assert json.loads(place.read_text(encoding="utf-8")) == ["/s/a", "/s/yaml/__init__.py"]
    assert [entry[0] for entry in analysis.datas] == ["resources/a"]


# --- trying it out ---


def test_frozen_program_is_tried_away_from_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("QUIRE_MODELS_DIR", "somewhere")
    monkeypatch.setenv("CC", "/usr/bin/gcc")
    env = build.clean_environment(tmp_path)
    assert "PYTHONPATH" not in env
    assert "QUIRE_MODELS_DIR" not in env
    assert "CC" not in env
    assert env["HOME"] == env["LOCALAPPDATA"] == env["TMPDIR"] == str(tmp_path)
    if sys.platform == "linux":
        assert shutil.which("gcc", path=env["PATH"]) is None
