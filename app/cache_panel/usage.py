"""How full the pool is: a stacked bar, three figures, and the legend with a count for each look."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPaintEvent, QPen, QPixmap
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.cache_panel import figures, words
from app.cache_panel.legend import CODES, WRITTEN, legend_images
from app.cache_panel.parts import plain_label, set_text
from app.cache_panel.pool_model import PoolModel
from app.cache_panel.pool_values import PoolCounts
from app.cache_panel.tiles import CACHED_AMOUNT
from app.i18n import tr
from app.theme import Theme, blend, number_font

LEGEND_SIDE = 18
_LOW = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom
BAR_HEIGHT = 12


class UsageBar(QWidget):
    """The pool sorted by state, left to right, and the watermark as a line."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._counts = PoolCounts(0, 0, 0, 0, 0)
        self._watermark = 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(200, BAR_HEIGHT + 8)

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.update()

    def set_counts(self, counts: PoolCounts, watermark_blocks: int) -> None:
        """Shows these counts; paints only if they changed."""
        if (counts, watermark_blocks) != (self._counts, self._watermark):
            self._counts = counts
            self._watermark = watermark_blocks
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._counts.total:
            return
        painter = QPainter(self)
        theme, counts = self._theme, self._counts
        ground, text = theme.color("background"), theme.color("text")
        accent = theme.color("accent")
        left = 0.0
        left = self._segment(painter, left, counts.private, accent)
        left = self._segment(painter, left, counts.shared, theme.shared, _hatch(ground))
        left = self._segment(painter, left, counts.pinned, text)
        pale = blend(ground, accent, CACHED_AMOUNT)
        left = self._segment(painter, left, counts.cached, pale, _dots(text))
        self._segment(painter, left, counts.free, theme.color("raised"))
        painter.setPen(QPen(theme.color("line"), 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(QRectF(0.5, 4.5, self.width() - 1, BAR_HEIGHT - 1))
        if self._watermark:
            share = 1 - self._watermark / counts.total
            x = round(share * (self.width() - 1)) + 0.5
            painter.setPen(QPen(theme.color("warning"), 2))
            painter.drawLine(QPointF(x, 0), QPointF(x, BAR_HEIGHT + 8))
        painter.end()

    def _segment(
        self, painter: QPainter, left: float, count: int, color: QColor, over: QBrush | None = None
    ) -> float:
        if not count:
            return left
        width = max(2.0, self.width() * count / self._counts.total)
        rect = QRectF(left, 4, width, BAR_HEIGHT)
        painter.fillRect(rect, color)
        if over is not None:
            painter.fillRect(rect, over)
        return left + width


def _hatch(color: QColor) -> QBrush:
    faint = QColor(color)
    faint.setAlphaF(0.7)
    return QBrush(faint, Qt.BrushStyle.BDiagPattern)


def _dots(color: QColor) -> QBrush:
    faint = QColor(color)
    faint.setAlphaF(0.6)
    return QBrush(faint, Qt.BrushStyle.Dense7Pattern)


class UsageView(QWidget):
    """Bar, figures and legend of one pool."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bar = UsageBar(theme)
        self._figures = {name: plain_label() for name in ("used", "cached", "free")}
        self._sizes = {name: plain_label(tone="muted") for name in self._figures}
        self._legend = {name: (plain_label(), plain_label()) for name in (*CODES, WRITTEN)}
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addLayout(self._figure_row())
        layout.addWidget(self._bar)
        layout.addLayout(self._legend_rows())
        self.set_theme(theme)
        self._set_legend(PoolCounts(0, 0, 0, 0, 0))

    def set_theme(self, theme: Theme) -> None:
        """Draws bar and samples in other colours."""
        self._bar.set_theme(theme)
        ratio = self.devicePixelRatioF()
        for name, image in legend_images(theme, LEGEND_SIDE, ratio).items():
            self._legend[name][0].setPixmap(QPixmap.fromImage(image))

    def show_legend(self, shown: bool) -> None:
        """Shows or leaves out the legend."""
        for sample, label in self._legend.values():
            sample.setVisible(shown)
            label.setVisible(shown)

    def show_pool(self, model: PoolModel) -> None:
        """Shows the counts of ``model``."""
        counts = model.counts
        self._bar.set_counts(counts, model.watermark_blocks)
        for name in self._figures:
            number = int(getattr(counts, name))
            set_text(self._figures[name], f"{number:,}")
            size = words.megabytes(figures.megabytes(model, number))
            set_text(self._sizes[name], size)
        self._set_legend(counts)
        self._describe(model)

    def show_nothing(self) -> None:
        """There is no pool."""
        counts = PoolCounts(0, 0, 0, 0, 0)
        self._bar.set_counts(counts, 0)
        for label in (*self._figures.values(), *self._sizes.values()):
            set_text(label, "")
        self._set_legend(counts)

    def _figure_row(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(12)
        titles = {
            "used": tr("Used blocks"),
            "cached": tr("Cached blocks"),
            "free": tr("Free blocks"),
        }
        for name, title in titles.items():
            column = QVBoxLayout()
            column.setSpacing(0)
            heading = plain_label(title, "muted")
            figure = self._figures[name]
            figure.setFont(number_font(15.0))
            figure.setMinimumHeight(figure.fontMetrics().height() + 2)
            beside = QHBoxLayout()
            beside.setSpacing(6)
            beside.addWidget(figure)
            beside.addWidget(self._sizes[name], 1, _LOW)
            column.addWidget(heading)
            column.addLayout(beside)
            row.addLayout(column, 1)
        return row

    def _legend_rows(self) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(6)
        grid.setVerticalSpacing(4)
        for index, (sample, label) in enumerate(self._legend.values()):
            row, column = divmod(index, 3)
            grid.addWidget(sample, row, 2 * column)
            grid.addWidget(label, row, 2 * column + 1)
        for column in (1, 3, 5):
            grid.setColumnStretch(column, 1)
        return grid

    def _set_legend(self, counts: PoolCounts) -> None:
        texts = {
            "private": tr("Private {n}", n=f"{counts.private:,}"),
            "shared": tr("Shared {n}", n=f"{counts.shared:,}"),
            "pinned": tr("Pinned {n}", n=f"{counts.pinned:,}"),
            "cached": tr("Cached"),
            "free": tr("Free"),
            "written": tr("Written now"),
        }
        for name, text in texts.items():
            set_text(self._legend[name][1], text)

    def _describe(self, model: PoolModel) -> None:
        text = tr(
            "{blocks} are kept free when a new request starts (the line).",
            blocks=words.blocks(model.watermark_blocks),
        )
        if self._bar.toolTip() != text:
            self._bar.setToolTip(text)
