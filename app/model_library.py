"""The models on this computer, kept up to date: folders are watched, models described."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app.bridge import Bridge
from app.library.descriptions import Descriptions
from app.library.entry import STARTER_FILE, ModelEntry
from app.library.places import Places, same_place
from app.library.scan import FolderScan, FoundModel
from app.library.speeds import OwnPace, Speed, SpeedBook
from app.model_folders import ModelFolders
from engine.api.errors import ErrorInfo
from engine.api.events import Event, RequestFinished, RequestQueued
from engine.api.model_description import ModelDescription
from engine.api.params import EngineConfig

if TYPE_CHECKING:
    from app.session import Session

_PLACES_STATE, _SPEEDS_STATE = "model_places", "model_speeds"


class ModelLibrary(QObject):
    """Lists nothing before the first ``refresh``. GUI thread only; folders are read on another.

    Signals:
        changed(): models came or went, or more is known of them; see ``entries`` and ``scans``.
    """

    changed = Signal()

    def __init__(self, bridge: Bridge, session: Session) -> None:
        super().__init__(session)
        self._bridge = bridge
        self._session = session
        self._places: Places | None = None
        self._speeds: SpeedBook | None = None
        self._found: dict[str, tuple[FoundModel, str]] = {}
        self._descriptions = Descriptions(bridge.send)
        self._last_crowd = -math.inf
        self._own_pace = OwnPace()
        self._first = ""
        self._opened: set[str] = set()
        self.scans: tuple[FolderScan, ...] = ()
        self.has_scanned = False
        self.folders = ModelFolders(self._wanted, self)
        self.folders.scanned.connect(self._on_folders_scanned)
        session.settings_changed.connect(self._on_session_settings_changed)

    # --- reading ---

    @property
    def places(self) -> Places:
        """What the user has told. Changed through the methods here."""
        if self._places is None:
            state = self._session.window_state(_PLACES_STATE)
            save = self._session.set_window_state
            self._places = Places(state, lambda text: save(_PLACES_STATE, text))
        return self._places

    @property
    def speeds(self) -> SpeedBook:
        """How fast models have been."""
        if self._speeds is None:
            state = self._session.window_state(_SPEEDS_STATE)
            save = self._session.set_window_state
            self._speeds = SpeedBook(state, lambda text: save(_SPEEDS_STATE, text))
        return self._speeds

    @property
    def models_dir(self) -> str:
        """The model folder, which is always listed."""
        return self._session.models_dir

    def full_path(self, path: str) -> str:
        """Where a model lies; the empty path stands for the starter model."""
        return path or str(Path(self.models_dir) / STARTER_FILE)

    def load_path(self, path: str) -> str:
        """What ``Session.load_model`` takes: the starter model is empty there."""
        return "" if same_place(path, self.full_path("")) else path

    def entries(self) -> list[ModelEntry]:
        """All models, in the order that they were found."""
        return [self._entry(path) for path in self._found]

    def entry(self, path: str) -> ModelEntry | None:
        """The model at a full path, or None."""
        return self._entry(path) if path in self._found else None

    def config_for(self, path: str, config: EngineConfig) -> EngineConfig:
        """``config`` with what was chosen for the model alone."""
        name = self.places.chat_templates.get(self.full_path(path), "")
        return replace(config, chat_template=name) if name else config

    def free_bytes(self) -> int:
        """Memory that a model may take where models run, as said last; 0 if nothing was said."""
        about = (entry.description for entry in self.entries())
        return max((each.free_bytes for each in about if each is not None), default=0)

    def speed(self, entry: ModelEntry) -> Speed:
        """How fast it has been, or would about write."""
        device = "" if entry.description is None else entry.description.device
        return self.speeds.of(entry.path, device, entry.weights_bytes)

    # --- what the user does ---

    def refresh(self) -> None:
        """Looks into all folders again; ``changed`` follows if there is something new."""
        self._descriptions.try_deferred()
        self.folders.refresh()

    def describe_first(self, path: str) -> None:
        """Whose description is wanted before the others'."""
        self._first = path
        self._describe_next()

    def look_again(self, path: str) -> None:
        """Whether a model that could not be read can be read now."""
        self._descriptions.forget(path)
        self.changed.emit()
        self.refresh()

    def describe_again(self) -> None:
        """What fits has changed: all is asked again, and shown as it was until then."""
        self._descriptions.make_stale()
        self._describe_next()

    def add_folder(self, folder: str) -> bool:
        """Watches one more folder. False if it is watched already."""
        if same_place(folder, self.models_dir) or not self.places.add_folder(folder):
            return False
        self.refresh()
        return True

    def remove_folder(self, folder: str) -> None:
        """Watches it no more. Its files stay."""
        self.places.remove_folder(folder)
        self.refresh()

    def add_file(self, path: str) -> None:
        """Lists a model that was opened by its path, unless it is found in a watched folder."""
        self._show(path)
        if self.has_scanned:
            self.refresh()

    def _show(self, path: str) -> None:
        path = os.path.abspath(path)
        folders = [self.models_dir, *self.places.folders]
        if any(Path(path).is_relative_to(folder) for folder in folders):
            # It may lie deeper than is looked, or hidden: the next scan tells.
            self.places.show(path)
            self._opened.add(path)
        else:
            self.places.add_file(path)

    def remove(self, path: str) -> None:
        """Takes a model off the list. Its files stay."""
        entry = self.entry(path)
        if entry is not None:
            self.places.remove(path, bool(entry.folder))
            self._found.pop(path, None)
            self.changed.emit()

    def bring_back(self, path: str) -> None:
        """Lists a model again that was taken off."""
        self._show(path)
        self.refresh()

    def show_all(self) -> None:
        """Lists again what was taken off the list."""
        self.places.show_all()
        self.refresh()

    def set_chat_template(self, path: str, name: str) -> None:
        """Chooses a model's chat template, from its next load on; empty for its own."""
        self.places.set_chat_template(path, name)
        self.changed.emit()

    # --- watching ---

    def set_watching(self, watches: bool) -> None:
        """Whether folders are looked into whenever something in them changes."""
        self.folders.set_watching(watches)

    def _wanted(self) -> tuple[Sequence[str], Sequence[str]]:
        return [self.models_dir, *self.places.folders], self.places.files

    @Slot(object)
    def _on_session_settings_changed(self, names: frozenset[str]) -> None:
        if "engine" in names:
            self._describe_next()

    @Slot(object, object)
    def _on_folders_scanned(
        self, scans: Sequence[FolderScan], singles: Sequence[FoundModel]
    ) -> None:
        found: dict[str, tuple[FoundModel, str]] = {}
        hidden = self.places.hidden
        for scan in scans:
            for model in scan.models:
                if model.path not in hidden:
                    found.setdefault(model.path, (model, scan.folder))
        for model in singles:
            found.setdefault(model.path, (model, ""))
        starter = self.full_path("")
        if starter not in found and starter not in hidden:
            found[starter] = (FoundModel(starter, exists=False), self.models_dir)
        is_new = (found, tuple(scans)) != (self._found, self.scans) or not self.has_scanned
        self._found, self.scans, self.has_scanned = found, tuple(scans), True
        if self._drop_load_errors() or is_new:
            self.changed.emit()
        self._describe_next()
        self._keep_opened()

    def _keep_opened(self) -> None:
        """What was opened and not found in a watched folder is listed by itself."""
        inside = {model.path for scan in self.scans for model in scan.models}
        opened, self._opened = sorted(self._opened - inside - set(self.places.files)), set()
        for path in opened:
            self.places.add_file(path)
        if opened:
            self.refresh()

    def _drop_load_errors(self) -> bool:
        session = self._session
        if not session.load_errors:
            return False
        found = self._found.items()
        return session.models_found({self.load_path(p): model.identity for p, (model, _) in found})

    # --- describing ---

    def handle(self, event: Event) -> bool:
        """Takes descriptions; True if this was one. Notes the speed of answers."""
        is_own_pace = self._own_pace.take(event)
        if isinstance(event, RequestQueued | RequestFinished):
            self._note_speed(event, is_own_pace)
        if not self._descriptions.handle(event):
            return False
        self.changed.emit()
        self._describe_next()
        return True

    def engine_restarted(self) -> None:
        """What the old engine was asked is asked of the new one."""
        self._descriptions.give_up()
        self._describe_next()

    def _describe_next(self) -> None:
        if not self._bridge.is_started:
            return
        found = sorted(self._found.values(), key=lambda pair: pair[0].path != self._first)
        self._descriptions.ask_next(
            (model for model, _folder in found),
            lambda path: self._session.engine_config(self.load_path(path)),
        )

    def _entry(self, path: str) -> ModelEntry:
        model, folder = self._found[path]
        said = self._descriptions.of(path) if model.exists else None
        return ModelEntry(
            path,
            folder,
            model.identity,
            model.exists,
            path == self.full_path(""),
            said if isinstance(said, ModelDescription) else None,
            said if isinstance(said, ErrorInfo) else None,
        )

    def _note_speed(self, event: RequestQueued | RequestFinished, is_own_pace: bool) -> None:
        now, state = time.monotonic(), self._session.model_state
        if isinstance(event, RequestFinished) and state.info is not None and is_own_pace:
            began = now - event.usage.total_s
            ran_alone = self._last_crowd < began and self._session.num_running_answers <= 1
            self.speeds.note(state.info, event.usage, ran_alone)
        if self._session.num_running_answers > 1:
            self._last_crowd = now
