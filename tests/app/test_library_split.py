"""A model that lies in several files, in the window of the model library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QMessageBox

from app.widgets.library import deleting
from app.widgets.library.deleting import ask_to_delete
from engine.api.errors import ModelPartsMissingError
from tests.helpers.library_stage import description, write_gguf
from tests.helpers.library_window import LibraryStage, library_window

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")
MISSING = ModelPartsMissingError(
    "Own words.", parts="2", missing=1, count=3, name="big-00002-of-00003.gguf"
)


@pytest.fixture
def library(qtbot) -> Iterator[LibraryStage]:
    with library_window(qtbot) as made:
        yield made


@pytest.fixture
def parts(library: LibraryStage) -> list[Path]:
    """Three of a model of 6 MB in a folder of their own; the engine knows it."""
    folder = Path(library.stage.session.models_dir) / "org--big"
    sizes = (1_000_000, 2_000_000, 3_000_000)
    made = [folder / f"big-{n:05}-of-00003.gguf" for n in (1, 2, 3)]
    library.stage.engine.descriptions[str(made[0])] = description(str(made[0]), "big")
    for path, size in zip(made, sizes, strict=True):
        write_gguf(path, size)
    library.stage.session.library.refresh()
    library.wait(lambda: is_described(library, made[0]))
    return made


def entry_of(library: LibraryStage, path: Path):
    return library.stage.session.library.entry(str(path))


def is_described(library: LibraryStage, path: Path) -> bool:
    entry = entry_of(library, path)
    return entry is not None and entry.description is not None


def test_it_is_one_model_with_the_size_of_all_files(
    library: LibraryStage, parts: list[Path]
) -> None:
    library.wait(lambda: library.page.model.rowCount() == 6)
    library.pick(str(parts[0]))
    assert library.row(str(parts[0])).startswith("big, ")
    assert "6.0 MB" in library.row(str(parts[0]))
    library.wait(lambda: "6.0 MB in 3 parts" in library.words())


def test_a_part_that_goes_and_comes_back_is_seen(library: LibraryStage, parts: list[Path]) -> None:
    first = parts[0]
    library.stage.engine.descriptions[str(first)] = MISSING
    aside = parts[1].rename(parts[1].with_suffix(".aside"))
    library.wait(lambda: entry_of(library, first).is_incomplete)
    library.pick(str(first))
    library.wait(lambda: "Part 2 of 3 is missing: big-00002-of-00003.gguf." in library.words())
    library.wait(lambda: "4.0 MB · Part 2 of 3 is missing" in library.row(str(first)))
    assert library.row(str(first)).startswith("big.gguf, cannot be read")
    library.stage.engine.descriptions[str(first)] = description(str(first), "big")
    aside.rename(parts[1])
    library.wait(lambda: is_described(library, first))
    library.wait(lambda: library.row(str(first)).startswith("big, "))


def test_without_its_first_part_it_is_still_one_model(
    library: LibraryStage, parts: list[Path]
) -> None:
    library.stage.engine.descriptions[str(parts[1])] = MISSING
    parts[0].unlink()
    library.wait(lambda: entry_of(library, parts[1]) is not None)
    assert entry_of(library, parts[0]) is None
    assert entry_of(library, parts[2]) is None


def test_deleting_takes_all_parts_the_first_one_last(
    library: LibraryStage, parts: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    thrown: list[Path] = []

    def throw(path: Path) -> bool:
        thrown.append(path)
        path.unlink()
        return True

    monkeypatch.setattr(deleting, "move_to_trash", throw)
    box = ask_to_delete(
        entry_of(library, parts[0]), library.stage.session.models_dir, library.window, lambda: None
    )
    assert "(6.0 MB)" in box.text()
    assert box.informativeText() == f"All 3 parts: {parts[0]}"
    delete_button(box).click()
    assert thrown == parts[::-1]
    library.wait(lambda: entry_of(library, parts[0]) is None)


def delete_button(box: QMessageBox):
    return next(button for button in box.buttons() if "recycle bin" in button.text())
