"""The application's state: conversations, requests, the model. What the window shows and asks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from PySide6.QtCore import QObject, Slot

from app.asking import Asking
from app.bridge import Bridge
from app.cache_pins import CachePins
from app.gauges import Gauges
from app.idle_unload import IdleUnload
from app.model_control import ModelControl, engine_died_error
from app.model_library import ModelLibrary
from app.outlooks import Outlooks
from app.prompts import Prompts
from app.session_state import (
    ModelState,
    ModelStatus,
    Notice,
    Outlook,
    Severity,
)
from app.settings import Settings
from app.store import Store
from engine.api.commands import SetFocus
from engine.api.errors import ErrorInfo
from engine.api.events import CommandFailed, Event, ModelInfo
from engine.api.model_files import ModelIdentity
from engine.api.params import EngineConfig

_LOG = logging.getLogger(__name__)
_TABS_STATE = "open_tabs"
_ACTIVE_STATE = "active_tab"
_KEPT_CLOSED = 20


class Session(Asking):
    """Owns the conversations and drives the engine through the bridge. GUI thread only.

    Widgets read the conversations that it hands out and never change them; every change goes
    through a method here and comes back as a signal of ``SessionSignals``.
    """

    def __init__(
        self,
        bridge: Bridge,
        store: Store,
        settings: Settings,
        models_dir: str,
        parent: QObject | None = None,
    ) -> None:
        """Opens the conversations that were open last time. ``models_dir``: the model folder."""
        super().__init__(bridge, store, settings, parent)
        self._bridge = bridge
        self.models_dir = models_dir
        self._outlooks = Outlooks(bridge, self)
        self.gauges = Gauges(bridge, self)
        self.prompts = Prompts(bridge, store, self)
        self._cache_pins = CachePins(bridge, self)
        self.library = ModelLibrary(bridge, self)
        self._model = ModelControl(
            bridge,
            self.engine_config,
            models_dir,
            self,
            self._on_model_ready,
            self._answers.model_unavailable,
        )
        self._remembers_model = False
        # Files that were still read for a draft when its tab was closed, by conversation.
        self.unread_files: dict[str, tuple[Path, ...]] = {}
        self._idle_unload = IdleUnload(self, settings)
        self.model_state_changed.connect(self._on_model_state_changed)
        self.request_state_changed.connect(self._on_request_state_changed)
        bridge.engine_event.connect(self._on_bridge_engine_event)

    # --- reading ---

    @property
    def model_state(self) -> ModelState:
        return self._model.state

    def outlook(self, conversation_id: str) -> Outlook | None:
        """What came of the last ``ask_outlook``; None if nothing is known or it cannot matter."""
        return self._outlooks.of(conversation_id)

    def ask_outlook(self, conversation_id: str, text: str) -> bool:
        """Asks what sending ``text`` would do; ``outlook_changed`` follows. False if it surely
        fits, or no model is there to ask.
        """
        conversation = self._open[conversation_id]
        max_tokens = self.sampling(conversation_id).max_tokens
        return self._outlooks.ask(conversation, text, self.model_state.info, max_tokens)

    def is_kept_in_cache(self, conversation_id: str) -> bool:
        """Whether its blocks are pinned: they stay in the pool although nobody uses them."""
        return self._cache_pins.has(conversation_id)

    def ask_gauge(self, conversation_id: str, text: str) -> None:
        """Asks what sending ``text`` would cost; ``gauges.changed`` follows, twice."""
        conversation = self._open[conversation_id]
        max_tokens = self.sampling(conversation_id).max_tokens
        self.gauges.ask(conversation, text, self.model_state.info, max_tokens)

    # --- conversations ---

    def keep_in_cache(self, conversation_id: str, keep: bool) -> None:
        """Pins the blocks of the shown branch, as it grows too, or lets them go.

        Until the conversation is closed; with another model its blocks there.
        """
        self._cache_pins.set(self._open[conversation_id], keep)

    def close_conversation(self, conversation_id: str) -> None:
        """Stops its answer and closes it; it stays stored, one into which nothing was written
        is deleted.
        """
        self._outlooks.forget(conversation_id)
        self._cache_pins.forget(conversation_id)
        super().close_conversation(conversation_id)

    def set_active_conversation(self, conversation_id: str) -> None:
        """Tells which conversation is in front; the engine serves it first. Empty for none."""
        if conversation_id != self._active_id:
            self._bridge.send(SetFocus(conversation_id))
            super().set_active_conversation(conversation_id)

    # --- model ---

    def engine_config(self, path: str) -> EngineConfig:
        """The engine's settings for a model: those of all models, and the model's own."""
        return self.library.config_for(path, self._settings.values.engine)

    def load_model(self, path: str = "", remember: bool = True) -> None:
        """Loads a GGUF file or model folder; empty means the starter model. Running answers stop.

        ``remember``: the next start loads it too, if it can be loaded now.
        """
        self._remembers_model = remember
        self._answers.model_loading()
        self._model.load(path)

    def switch_model(self, path: str, wait: bool = True) -> None:
        """Loads another model for all conversations, which stay; their text is read again.

        ``wait``: as soon as the running answers have ended; what is asked meanwhile waits for the
        new model. Otherwise they stop, and can be continued.
        """
        if wait and self.num_running_answers and self.model_state.status is ModelStatus.READY:
            self._answers.model_loading()
            self._model.plan(path)
        else:
            self.load_model(path, remember=False)

    def stay_with_model(self) -> None:
        """Takes a ``switch_model`` that still waits back; stops a load in progress."""
        state = self.model_state
        if state.next_path is not None and state.info is not None:
            self._model.plan(None)
            self._answers.model_ready(state.info)
        else:
            self._model.cancel()

    def unload_model(self) -> None:
        """Frees the memory of the model; running answers stop. The next message loads it again."""
        self._model.unload()

    def wake_model(self) -> bool:
        """Loads the model that was let go. False if none was."""
        if not self.model_state.is_asleep:
            return False
        self._answers.model_loading()
        self._model.load(self._model.path)
        return True

    @property
    def num_running_answers(self) -> int:
        """Answers that the engine is asked for now."""
        return self._answers.num_running

    @property
    def tokens_so_far(self) -> Mapping[str, int]:
        """Tokens of prompt and answer, by message, of the answers that are being written."""
        return self._answers.tokens_so_far

    @property
    def load_errors(self) -> Mapping[str, ErrorInfo]:
        """Why models could not be loaded in this run, by their paths; of those that are what they
        were then.
        """
        return self._model.load_errors.errors

    def models_found(self, found: Mapping[str, ModelIdentity]) -> bool:
        """Takes what model files are now, by path: a load error of other files is forgotten. True
        if there was one.
        """
        return self._model.load_errors.drop_outdated(found)

    def retry_model(self) -> None:
        """Asks again for the model that was asked for last, of a new engine if this one has died.

        Does nothing if only a new process would help (``device_lost``).
        """
        if self._model.is_dead:
            if not self._model.revive():
                return
            self._bridge.send(SetFocus(self._active_id))
            self.library.engine_restarted()
        self.load_model(self._model.path, self._remembers_model)

    def restart_program(self) -> None:
        """Saves everything and asks for a new process in place of this one."""
        self.program_restart_requested.emit()

    def fetch_starter(self, remember: bool = True) -> None:
        """Fetches the starter model if it is absent, and loads it. Uses the network."""
        self._remembers_model = remember
        self._answers.model_loading()
        self._model.load("", fetch_starter=True)

    def engine_died(self, message: str) -> None:
        """The engine thread ended by a fault: answers fail, the window stays."""
        # What the engine itself has said last knows more: texts, ids, the true reason.
        self._bridge.drain()
        self._model.engine_died(engine_died_error(message))

    # --- end ---

    def save_all(self, timeout_s: float = 3.0) -> bool:
        """Waits until everything is stored that was said and typed. False if that failed."""
        return self._store.flush(timeout_s)

    def shut_down(self, timeout_s: float = 3.0) -> bool:
        """Marks running answers as interrupted and saves everything. False if that failed."""
        self._idle_unload.stop()
        self.library.set_watching(False)
        self._answers.interrupt_all()
        return self._store.flush(timeout_s)

    def _on_model_ready(self, info: ModelInfo) -> None:
        # First: what waits for the model must not depend on what is kept about it.
        self._answers.model_ready(info)
        if self._model.path:
            self.library.add_file(self._model.path)
        if self._remembers_model and self._settings.values.model_path != self._model.path:
            self.change_settings(model_path=self._model.path)

    @Slot()
    def _on_model_state_changed(self) -> None:
        if self.model_state.status is ModelStatus.NO_MODEL:
            self._answers.model_loading()
            if self._answers.num_waiting:
                self.wake_model()

    @Slot(str)
    def _on_request_state_changed(self, _conversation_id: str) -> None:
        path = self.model_state.next_path
        if path is not None and not self.num_running_answers:
            self.load_model(path, remember=False)

    @Slot(object)
    def _on_bridge_engine_event(self, event: Event) -> None:
        if self.library.handle(event):
            return
        if self._model.handle(event) or self._answers.handle(event):
            return
        if self._outlooks.handle(event) or self._cache_pins.handle(event):
            return
        if isinstance(event, CommandFailed) and not event.command_id:
            _LOG.warning("%s failed: %s", event.command, event.error.message)
            self.notice_raised.emit(Notice(Severity.WARNING, event.error))
