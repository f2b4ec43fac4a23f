"""The main job in a real window with the real engine, measured: ``python -m app --self-test``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from PySide6.QtCore import QEventLoop, QSize, QTimer
from PySide6.QtGui import QGuiApplication

from app.application import QuireApplication
from app.command_line import Options
from app.conversation import Message, MessageStatus, new_id
from app.gap_meter import GapMeter
from app.pool_watch import PoolWatch
from app.process_age import process_age_s
from app.self_test_report import (
    PoolReport,
    Report,
    check_figures,
    check_later_turn,
    check_tabs,
    tab_report,
    turn_report,
)
from app.session_state import ModelStatus, Notice, RequestPhase, Severity
from engine.api.commands import CountTokens
from engine.api.events import Event, TokensCounted
from engine.api.params import SamplingParams

PAINT_TIMEOUT_S = 30.0
LOAD_TIMEOUT_S = 300.0
ANSWER_TIMEOUT_S = 120.0
NEW_TOKENS = 48
WINDOW_SIZE = QSize(1320, 860)
_STEP_MS = 5

SYSTEM_PROMPT = (
    "You are a careful assistant for people who are curious about how things work. Answer in "
    "plain words and in full sentences. Begin with the most important fact, then give one "
    "example from daily life, and end with a short remark about what is often misunderstood. "
    "Do not use lists or headings. If a question has no clear answer, say so and explain what "
    "is known and what is not. Keep a friendly and calm tone throughout."
)
QUESTIONS = (
    "Why is the sky blue during the day?",
    "How does a refrigerator keep food cold?",
    "What makes bread rise in the oven?",
    "Tell me why leaves change colour in autumn.",
    "Explain how a bicycle stays upright.",
    "When does water boil at a lower temperature?",
    "Which animals sleep through the winter, and why?",
    "Describe how a lighthouse helps ships at night.",
)
SECOND_QUESTION = "Can you say that again in simpler words?"


class SelfTestError(Exception):
    """The test cannot go on; the message says why."""


class SelfTest:
    """Drives the window as a user would and fills ``report``; ``faults`` says what was wrong."""

    def __init__(self, application: QuireApplication, options: Options) -> None:
        self.report = Report()
        self.faults: list[str] = []
        self._application = application
        self._options = options
        self._window = application.window
        self._session = application.session
        self._meter = GapMeter()
        self._watch = PoolWatch(application.bridge)
        self._window.first_painted.connect(self._meter.start)
        self._session.notice_raised.connect(self._on_session_notice_raised)

    def run(self) -> None:
        """The whole test.

        Raises:
            SelfTestError: a step failed or took too long.
        """
        sampling = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS)
        self._session.change_settings(sampling=sampling)
        self._session.set_default_system_prompt(SYSTEM_PROMPT)
        if QGuiApplication.platformName() == "offscreen":
            # Its screen is smaller than any real one.
            self._window.resize(WINDOW_SIZE)
        self._application.show()
        self._wait(lambda: self._application.first_paint_ms is not None, "paint", PAINT_TIMEOUT_S)
        self.report.first_paint_ms = round(self._application.first_paint_ms or 0.0, 1)
        tabs = self._session.conversation_ids()[:1]
        while len(tabs) < self._options.tabs:
            tabs.append(self._window.new_tab())
            self._let_events_pass()
        self._load()
        first_answers = self._ask_all(tabs)
        block_size = self.report.pool.block_size if self.report.pool else 1
        self.faults += check_tabs(first_answers, block_size)
        self._second_turn(tabs[0], first_answers[0], block_size)
        self._fork(tabs[1], first_answers[1], question(0), block_size)
        self.report.gui_max_gap_ms = round(self._meter.take_ms(), 1)
        self._meter.stop()

    def judge_figures(self) -> None:
        """Adds what is wrong with the figures of the window and the pool; after ``run``."""
        self._read_watch()
        self.faults += check_figures(self.report)

    def finish(self) -> None:
        """Completes the report, whether or not ``run`` came to its end."""
        # What nobody caught is told by the event loop, in a later turn of it.
        self._let_events_pass(_STEP_MS)
        self._read_watch()
        self.report.ok = not self.faults

    def _read_watch(self) -> None:
        self._watch.look()
        self.report.shared_blocks_max = self._watch.shared_max
        self.report.invariant_violations = self._watch.violations
        if self.report.pool is not None:
            self.report.pool.used_max = self._watch.used_max

    def _load(self) -> None:
        def done() -> bool:
            state = self._session.model_state
            if state.status in (ModelStatus.FAILED, ModelStatus.NO_MODEL):
                error = state.error
                text = "no model" if error is None else f"{error.message} {error.action}"
                raise SelfTestError(text)
            return state.status is ModelStatus.READY

        self._wait(done, "loading the model", LOAD_TIMEOUT_S)
        self.report.gui_load_gap_ms = round(self._meter.take_ms(), 1)
        state = self._session.model_state
        assert state.info is not None
        self.report.model = state.info.name
        self.report.device = state.info.device
        self.report.backend = state.info.backend
        self.report.load_s = round(state.load_s, 2)
        self.report.pool = PoolReport(state.info.num_blocks, state.info.block_size, 0)

    def _ask_all(self, tabs: list[str]) -> list[Message]:
        for index, conversation_id in enumerate(tabs):
            self._window.submit_text(conversation_id, question(index))
            # At once means one after the other in the event loop: a user has one pair of hands.
            self._let_events_pass()
        if self._options.screenshot is not None:
            self._wait(lambda: self._all_stream(tabs), "streaming in all tabs", ANSWER_TIMEOUT_S)
            # The window shows at once most of what has come, the cache panel 15 times a second.
            self._let_events_pass(150)
            self._take_screenshot()
        if not self._window.cache_panel.isVisible():
            self.faults.append("the cache panel is not visible")
        answers = [self._answer(tabs[0])]
        self.report.first_answer_s = round(process_age_s(), 2)
        answers += [self._answer(conversation_id) for conversation_id in tabs[1:]]
        self.report.tabs = [tab_report(answer) for answer in answers]
        return answers

    def _all_stream(self, tabs: list[str]) -> bool:
        states = [self._session.request_state(conversation_id) for conversation_id in tabs]
        texts = [self._leaf(conversation_id).content for conversation_id in tabs]
        if not any(self._session.is_busy(conversation_id) for conversation_id in tabs):
            raise SelfTestError("the tabs never streamed at the same time")
        return all(s.phase is RequestPhase.DECODE for s in states) and all(
            len(text) > 60 for text in texts
        )

    def _take_screenshot(self) -> None:
        assert self._options.screenshot is not None
        path = self._options.screenshot
        # What has happened counts; the picture itself does not.
        gap_ms = self._meter.take_ms()
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self._window.grab().save(str(path)):
            raise SelfTestError(f"the screenshot could not be saved as {path}")
        self._meter.resume(gap_ms)
        self.report.screenshot = str(path)

    def _second_turn(self, conversation_id: str, before: Message, block_size: int) -> None:
        self._window.submit_text(conversation_id, SECOND_QUESTION)
        answer = self._answer(conversation_id)
        self.report.second_turn = turn_report(answer)
        tokens = self._count_tokens(SECOND_QUESTION)
        self.faults += check_later_turn("second turn", answer, before.turn, tokens, block_size)

    def _fork(self, conversation_id: str, before: Message, text: str, block_size: int) -> None:
        fork_id = self._session.fork(conversation_id)
        self._window.show_conversation(fork_id)
        self._let_events_pass()
        self._window.submit_text(fork_id, text)
        answer = self._answer(fork_id)
        self.report.fork = turn_report(answer)
        tokens = self._count_tokens(text)
        self.faults += check_later_turn("fork", answer, before.turn, tokens, block_size)

    def _answer(self, conversation_id: str) -> Message:
        """Waits for the answer in a conversation."""
        try:
            self._wait(
                lambda: not self._session.is_busy(conversation_id), "an answer", ANSWER_TIMEOUT_S
            )
        except SelfTestError as error:
            state = self._session.request_state(conversation_id)
            words = len(self._leaf(conversation_id).content.split())
            where = f"{state.phase.value} {state.reason}".strip()
            raise SelfTestError(f"{error}: {where}, {words} words so far") from None
        answer = self._leaf(conversation_id)
        if answer.status is not MessageStatus.DONE or answer.usage is None:
            raise SelfTestError(f"an answer ended as {answer.status.value}")
        return answer

    def _leaf(self, conversation_id: str) -> Message:
        path = self._session.conversation(conversation_id).path()
        if not path:
            raise SelfTestError("a question was not accepted")
        return path[-1]

    def _count_tokens(self, text: str) -> int:
        counted: list[int] = []
        command_id = new_id()

        def on_event(event: Event) -> None:
            if isinstance(event, TokensCounted) and event.command_id == command_id:
                counted.append(event.num_tokens)

        self._application.bridge.engine_event.connect(on_event)
        self._application.bridge.send(CountTokens(text, command_id=command_id))
        self._wait(lambda: bool(counted), "counting tokens", PAINT_TIMEOUT_S)
        self._application.bridge.engine_event.disconnect(on_event)
        return counted[0]

    def _on_session_notice_raised(self, notice: Notice) -> None:
        if notice.severity is Severity.ERROR:
            self.faults.append(f"{notice.error.code}: {notice.error.message}")

    def _let_events_pass(self, milliseconds: int = 0) -> None:
        loop = QEventLoop()
        QTimer.singleShot(milliseconds, loop.quit)
        loop.exec()

    def _wait(self, done: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Runs the event loop until ``done()``.

        Raises:
            SelfTestError: it took longer than ``timeout_s``.
            Exception: what ``done`` raised.
        """
        deadline = time.monotonic() + timeout_s
        loop = QEventLoop()
        failed: list[Exception] = []

        def look() -> None:
            try:
                self._watch.look()
                if done():
                    loop.quit()
                elif time.monotonic() > deadline:
                    raise SelfTestError(f"{what} took longer than {timeout_s:.0f} s")
            except Exception as error:
                # From here it would get no further than the event loop, and the test would go on.
                failed.append(error)
                loop.quit()

        timer = QTimer()
        timer.timeout.connect(look)
        timer.start(_STEP_MS)
        loop.exec()
        timer.stop()
        if failed:
            raise failed[0]


def question(index: int) -> str:
    """Question of tab ``index``; they repeat after a while, with a number to tell them apart."""
    text = QUESTIONS[index % len(QUESTIONS)]
    again = index // len(QUESTIONS)
    return text if again == 0 else f"Number {again}: {text}"


def run_self_test(application: QuireApplication, options: Options) -> int:
    """Runs it, prints the report as the last line, and returns the exit status."""
    test = SelfTest(application, options)
    try:
        test.run()
    except SelfTestError as error:
        test.faults.append(str(error))
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        test.faults.append(f"{type(error).__name__}: {error}")
    else:
        test.judge_figures()
    test.finish()
    for fault in dict.fromkeys(test.faults):
        sys.stderr.write(f"self-test: {fault}\n")
    if options.json_file is not None:
        test.report.write(options.json_file)
    sys.stdout.write(test.report.to_json() + "\n")
    sys.stdout.flush()
    return 0 if test.report.ok else 1
