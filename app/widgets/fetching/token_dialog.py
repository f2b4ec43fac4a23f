"""Entering the access token."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.fetching.tokens import Place
from app.i18n import tr
from app.widgets.dialogs import confirm_link
from app.widgets.fetching.service import FetchService
from app.widgets.fetching.words import place_words


class TokenDialog(QDialog):
    """Shows where the token is, never the token itself."""

    def __init__(self, service: FetchService, parent: QWidget) -> None:
        super().__init__(parent)
        self._service = service
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Access token"))
        self.setMinimumWidth(460)
        about = QLabel(
            tr(
                "Models with terms to accept, and private ones, need an access token of your "
                "account at {host}. A token that may only read is enough. It is sent to {host} "
                "alone.",
                host=service.host,
            )
        )
        about.setTextFormat(Qt.TextFormat.PlainText)
        about.setWordWrap(True)
        self.edit = QLineEdit()
        self.edit.setEchoMode(QLineEdit.EchoMode.Password)
        self.edit.setPlaceholderText(tr("Paste the token here"))
        self.edit.setAccessibleName(tr("Access token"))
        self.edit.setMaxLength(500)
        self.status = QLabel()
        self.status.setTextFormat(Qt.TextFormat.PlainText)
        self.status.setWordWrap(True)
        self.status.setProperty("tone", "muted")
        self.page_button = QPushButton(tr("Get a token…"))
        self.remove_button = QPushButton(tr("Delete the token"))
        self.save_button = QPushButton(tr("Save"))
        self.save_button.setProperty("kind", "primary")
        for button in (self.page_button, self.remove_button):
            button.setAutoDefault(False)
        self.save_button.setDefault(True)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.page_button)
        buttons.addStretch(1)
        buttons.addWidget(self.remove_button)
        buttons.addWidget(self.save_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        for widget in (about, self.edit, self.status):
            column.addWidget(widget)
        column.addLayout(buttons)
        self.page_button.clicked.connect(self._on_page_clicked)
        self.remove_button.clicked.connect(self._on_remove_clicked)
        self.save_button.clicked.connect(self._on_save_clicked)
        self.edit.textChanged.connect(self._refresh)
        service.token_changed.connect(self._on_service_token_changed)
        self._refresh()

    def _refresh(self) -> None:
        tokens = self._service.tokens
        self.status.setText(place_words(tokens.place, tokens.failed))
        self.save_button.setEnabled(bool(self.edit.text().strip()))
        self.remove_button.setEnabled(tokens.place is not Place.NOWHERE)

    def _on_save_clicked(self) -> None:
        self.status.setText(tr("Saving…"))
        self._service.set_token(self.edit.text())
        self.edit.clear()
        self.status.setText(tr("Saving…"))

    def _on_remove_clicked(self) -> None:
        self._service.set_token("")

    def _on_page_clicked(self) -> None:
        confirm_link(f"{self._service.hub.endpoint}/settings/tokens", self)

    def _on_service_token_changed(self) -> None:
        self._refresh()
