"""Overrides of Qt's methods that fail: for tests only. Prints what came of them as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from PySide6.QtCore import QAbstractListModel, QEvent, QModelIndex, QObject, QSize, Qt
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app.overrides import guard_overrides

T = TypeVar("T")
shown: list[str] = []
told: list[str] = []


class Earlier(QWidget):
    """There before overrides are guarded."""

    def resizeEvent(self, event: QResizeEvent) -> None:
        raise ValueError("resizeEvent")

    def showEvent(self, event: QShowEvent) -> None:
        shown.append(type(self).__name__)

    def minimumSizeHint(self) -> QSize:
        return QSize(20, 21)

    def own(self) -> None:
        raise KeyError("own")


def _show(kind: type[QWidget]) -> QWidget:
    window = QWidget()
    column = QVBoxLayout(window)
    for _ in range(2):
        column.addWidget(kind())
    window.show()
    return window


def _note(kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    told.append(str(error))


def _main() -> int:
    _qt = QApplication(["quire"])
    guard_overrides()
    sys.excepthook = _note

    class Later(Earlier):
        def resizeEvent(self, event: QResizeEvent) -> None:
            raise ValueError("resizeEvent")

        def showEvent(self, event: QShowEvent) -> None:
            shown.append(type(self).__name__)

    class Model(QAbstractListModel, Generic[T]):
        def rowCount(self, parent: QModelIndex | None = None) -> int:  # type: ignore[override]
            raise ValueError("rowCount")

        def flags(self, index: QModelIndex) -> Qt.ItemFlag:  # type: ignore[override]
            raise ValueError("flags")

    class Other(QWidget):
        def sizeHint(self) -> QSize:
            raise ValueError("sizeHint")

        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            raise ValueError("eventFilter")

    kinds = (Earlier, Later)
    before = [sys.getrefcount(kind.showEvent) for kind in kinds]
    windows = [_show(kind) for kind in kinds]
    lost = [n - sys.getrefcount(kind.showEvent) for n, kind in zip(before, kinds, strict=True)]
    model = Model[int]()
    other = Other()
    size = other.sizeHint()
    answers = {
        "rowCount": model.rowCount(),
        "flags": model.flags(QModelIndex()),
        "sizeHint": [size.width(), size.height()],
        "eventFilter": other.eventFilter(other, QEvent(QEvent.Type.User)),
    }
    earlier = windows[0].findChild(Earlier)
    assert isinstance(earlier, Earlier)
    try:
        earlier.own()
    except KeyError:
        own = "KeyError"
    method = vars(Earlier)["resizeEvent"]
    guard_overrides()
    found = {
        "told": told,
        "shown": shown,
        "lost_references": lost,
        "answers": answers,
        "height": earlier.minimumSizeHint().height(),
        "own": own,
        "same_after_second_call": vars(Earlier)["resizeEvent"] is method,
    }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
