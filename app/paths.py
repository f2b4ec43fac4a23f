"""Where things live on disk. Qt-free."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

APP_NAME = "Quire"
MODELS_DIR_VARIABLE = "QUIRE_MODELS_DIR"


def data_dir() -> Path:
    """The ordinary profile: conversations, settings and log of this user."""
    import platformdirs

    return Path(platformdirs.user_data_dir(APP_NAME, appauthor=False)) / "profile"


def models_dir() -> Path:
    """The model folder, shared by all profiles; ``QUIRE_MODELS_DIR`` overrides it."""
    override = os.environ.get(MODELS_DIR_VARIABLE)
    if override:
        return Path(override).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir(APP_NAME, appauthor=False)) / "models"


@dataclass(frozen=True, slots=True)
class Profile:
    """The files of one profile."""

    data_dir: Path

    @property
    def database(self) -> Path:
        return self.data_dir / "conversations.sqlite3"

    @property
    def lock_file(self) -> Path:
        return self.data_dir / "profile.lock"

    @property
    def restore_file(self) -> Path:
        """There while a start brings conversations back; see ``app.safe_start``."""
        return self.data_dir / "restoring.json"

    @property
    def check_file(self) -> Path:
        """There if the next start is to check the database before it uses it."""
        return self.data_dir / "check-database"

    @property
    def settings_file(self) -> Path:
        return self.data_dir / "settings.json"

    @property
    def log_file(self) -> Path:
        return self.data_dir / "quire.log"
