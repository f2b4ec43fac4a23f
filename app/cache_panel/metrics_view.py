"""The metrics page: plots over time that can be saved as an image and as a table."""

from __future__ import annotations

import math
import time
from datetime import datetime
from pathlib import Path

from PySide6.QtCore import QPoint, QSize, Qt
from PySide6.QtGui import QImage, QPainter, QShowEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QScrollArea,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.cache_panel import metrics as names
from app.cache_panel import words
from app.cache_panel.metrics import Metrics
from app.cache_panel.parts import WrappedLabel
from app.cache_panel.plot import HEIGHT, Curve, Plot
from app.i18n import tr
from app.theme import Theme

SPANS_S = (30.0, 60.0, 120.0, 300.0)
"""The shortest that shows all there is; the last one at most."""
IMAGE_RATIO = 2.0
DASH, DOT = Qt.PenStyle.DashLine, Qt.PenStyle.DotLine


class MetricsView(QWidget):
    """Shows ``metrics``; ``show_metrics`` at most a few times a second."""

    def __init__(self, metrics: Metrics, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._metrics = metrics
        self._theme = theme
        self.speed = Plot(tr("Speed"), _rate, theme, axis_words=_axis)
        self.ttft = Plot(tr("Time to first token"), _time, theme)
        self.itl = Plot(tr("Gap between tokens"), _time, theme)
        self.hits = Plot(tr("Prompt found in the cache"), _percent, theme)
        self.usage = Plot(tr("Blocks"), _whole, theme, axis_words=_axis)
        self.plots = (self.speed, self.ttft, self.itl, self.hits, self.usage)
        self.image_button = _button(tr("Save image…"))
        self.csv_button = _button(tr("Save CSV…"))
        self.note = WrappedLabel(1, "muted")
        self.note.hide()
        for plot in self.plots:
            # Idle, the engine counts nothing, and yet time passes.
            plot.pointed.connect(self.show_metrics)
        self._lay_out()
        self.image_button.clicked.connect(self._on_image_button_clicked)
        self.csv_button.clicked.connect(self._on_csv_button_clicked)

    def _lay_out(self) -> None:
        self._column = QWidget()
        inside = QVBoxLayout(self._column)
        inside.setContentsMargins(0, 0, 8, 0)
        inside.setSpacing(10)
        for plot in self.plots:
            inside.addWidget(plot)
        inside.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidget(self._column)
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setAccessibleName(tr("Metrics"))
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.image_button)
        row.addWidget(self.csv_button)
        row.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(row)
        layout.addWidget(self.note)
        layout.addWidget(scroll, 1)

    def sizeHint(self) -> QSize:
        return QSize(340, 150)

    def minimumSizeHint(self) -> QSize:
        return QSize(120, 40)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.show_metrics()

    def set_theme(self, theme: Theme) -> None:
        """Draws everything in other colours."""
        self._theme = theme
        for plot in self.plots:
            plot.set_theme(theme)

    def show_metrics(self) -> None:
        """Draws the plots as things are now; does nothing while they cannot be seen."""
        if not self.isVisible():
            return
        found, end_s = self._metrics, time.monotonic()
        begin_s = min((points[0][0] for points in found.series.values() if points), default=end_s)
        start_s = end_s - next((s for s in SPANS_S if s >= end_s - begin_s), SPANS_S[-1])
        series = found.series
        speed = [Curve("", series[names.SPEED], "accent")]
        self.speed.show_curves(speed, start_s, end_s, _known(_rate, found.latest(names.SPEED)))
        ttft = [Curve("", series[names.TTFT], "accent", dots=True)]
        self.ttft.show_curves(ttft, start_s, end_s, _known(_time, found.latest(names.TTFT)))
        styles = (Qt.PenStyle.SolidLine, DASH, DOT)
        tokens = ("accent", "warning", "error")
        itl = [
            Curve(title, series[name], token, style)
            for name, title, token, style in zip(
                names.ITL, ("p50", "p95", "p99"), tokens, styles, strict=True
            )
        ]
        self.itl.show_curves(itl, start_s, end_s, self._itl_words())
        hits = [Curve("", series[names.HIT_RATE], "accent", dots=True)]
        self.hits.show_curves(hits, start_s, end_s, self._hit_words(), least_top=1.0)
        usage = [
            Curve(tr("used"), series[names.USED], "accent"),
            Curve(tr("cached"), series[names.CACHED], "warning", DASH),
        ]
        self.usage.show_curves(usage, start_s, end_s, self._usage_words())

    def _itl_words(self) -> str:
        values = [self._metrics.latest(name) for name in names.ITL]
        if math.isnan(values[0]):
            return ""
        return " · ".join(
            f"{title} {_time(value)}"
            for title, value in zip(("p50", "p95", "p99"), values, strict=True)
        )

    def _hit_words(self) -> str:
        total = self._metrics.prompt_tokens
        if not total:
            return ""
        return tr(
            "{percent} of {tokens} in all",
            percent=_percent(self._metrics.cached_tokens / total),
            tokens=words.tokens(total),
        )

    def _usage_words(self) -> str:
        used = self._metrics.latest(names.USED)
        if math.isnan(used):
            return ""
        return tr(
            "{used} used · {cached} cached · {free} free",
            used=_whole(used),
            cached=_whole(self._metrics.latest(names.CACHED)),
            free=_whole(self._metrics.latest(names.FREE)),
        )

    # --- saving ---

    def save_image(self, path: str) -> None:
        """All plots under each other, as a PNG."""
        self.show_metrics()
        size = QSize(self._column.width(), (HEIGHT + 10) * len(self.plots))
        image = QImage(size * IMAGE_RATIO, QImage.Format.Format_RGB32)
        image.setDevicePixelRatio(IMAGE_RATIO)
        image.fill(self._theme.color("background"))
        painter = QPainter(image)
        for index, plot in enumerate(self.plots):
            painter.save()
            painter.translate(QPoint(0, index * (HEIGHT + 10)))
            plot.paint(painter)
            painter.restore()
        painter.end()
        saved = image.save(path, "PNG")  # type: ignore[call-overload]
        self._tell(path, "" if saved else tr("it cannot be written"))

    def save_csv(self, path: str) -> None:
        """Every point that is kept, one a line."""
        try:
            with Path(path).open("w", encoding="utf-8", newline="") as file:
                self._metrics.write_csv(file, time.monotonic(), datetime.now().astimezone())
        except OSError as error:
            self._tell(path, error.strerror or str(error))
        else:
            self._tell(path, "")

    def _tell(self, path: str, trouble: str) -> None:
        name = Path(path).name
        if trouble:
            text = tr("{name} was not saved: {reason}. Choose another folder.",
                      name=name, reason=trouble)  # fmt: skip
        else:
            text = tr("Saved as {path}", path=path)
        self.note.show_text(text)
        self.note.show()

    def _on_image_button_clicked(self) -> None:
        dialog = self._dialog(tr("Save the plots"), tr("Images (*.png)"), "png")
        dialog.fileSelected.connect(self.save_image)
        dialog.open()

    def _on_csv_button_clicked(self) -> None:
        dialog = self._dialog(tr("Save the figures"), tr("Tables (*.csv)"), "csv")
        dialog.fileSelected.connect(self.save_csv)
        dialog.open()

    def _dialog(self, title: str, kind: str, suffix: str) -> QFileDialog:
        dialog = QFileDialog(self, title)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters([kind, tr("All files (*)")])
        dialog.setDefaultSuffix(suffix)
        dialog.selectFile(f"metrics.{suffix}")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        return dialog


def _button(text: str) -> QToolButton:
    button = QToolButton()
    button.setText(text)
    button.setAccessibleName(text)
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return button


def _known(say: object, value: float) -> str:
    return "" if math.isnan(value) or not callable(say) else str(say(value))


def _rate(value: float) -> str:
    return tr("{rate} tok/s", rate=f"{value:,.0f}")


def _time(value: float) -> str:
    """Milliseconds under a second: tenths of one would hide what differs."""
    if 0 < value < 1:
        return tr("{value} ms", value=f"{value * 1000:.0f}")
    return tr("{value} s", value=f"{value:,.1f}" if value else "0")


def _axis(value: float) -> str:
    """Half of the least axes is no whole number."""
    return f"{value:,.1f}" if value % 1 else f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _whole(value: float) -> str:
    return f"{value:,.0f}"
