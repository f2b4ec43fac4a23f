"""What the window feels like: gaps of its event loop, keys, opening, start, memory, search.

Each figure is taken in a process of its own. All are wall-clock times of the real window.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import Any

SECONDS = 20.0
TABS = 8
KEYS = 150
BIG_CHARS = 1_200_000
ROUNDS, WARM_ROUNDS = 100, 20
LONG_TOKENS = 30_000

Figures = dict[str, Any]


def measure() -> Figures:
    """The figures of the last line. What they are made of is printed before, a line for each."""
    from tests.benchmarks import gui_search, gui_start

    streaming = _part("streaming", _apart(stream_in_tabs))
    _part("long answer", _apart(stream_long_answer))
    keys = _part("keys", _apart(type_while_streaming))
    big = _part("big", _apart(open_big))
    memory = _part("memory", _apart(open_and_close))
    start = _part("start", gui_start.measure())
    search = _part("search", gui_search.measure())
    return {
        "gap_p50_ms": streaming["gap_p50_ms"],
        "gap_p99_ms": streaming["gap_p99_ms"],
        "gap_max_ms": streaming["gap_max_ms"],
        "key_to_paint_ms": keys["p95_ms"],
        "open_big_ms": max(big["open_ms"].values()),
        "first_paint_ms": start["first_paint_ms"],
        "first_paint_5000_ms": start["first_paint_5000_ms"],
        "rss_growth_mb": memory["rss_growth_mb"],
        "search_ms": search["search_ms"],
    }


def _part(name: str, figures: Figures) -> Figures:
    print(json.dumps({"part": name, **figures}), flush=True)
    return figures


def _apart(part: Callable[[], Figures]) -> Figures:
    # Memory and garbage of one part are not to be found in another's figures.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(part)


def stream_in_tabs() -> Figures:
    """Eight tabs stream 200 tokens a second each, the cache panel is visible, and the user goes
    from tab to tab.
    """
    from tests.benchmarks.gui_window_stage import Driven, GapRecorder

    with Driven() as driven:
        tabs = driven.open_tabs(TABS)
        for number, tab in enumerate(tabs):
            driven.window.submit_text(tab, f"Question {number}: what is paging good for?")
        driven.run(2.0)
        texts = _lengths(driven, tabs)
        recorder = GapRecorder()
        recorder.start()
        started = time.perf_counter()
        for tab in tabs:
            driven.window.show_conversation(tab)
            driven.run(SECONDS / TABS)
        recorder.stop()
        seconds = time.perf_counter() - started
        characters = sum(_lengths(driven, tabs)) - sum(texts)
        return _gaps(recorder.gaps_ms) | {
            "characters_per_s": round(characters / seconds),
            "panel": driven.window.cache_panel.isVisible(),
        }


def stream_long_answer() -> Figures:
    """One answer of 30,000 tokens, ten times as fast as it would come."""
    from tests.benchmarks.gui_window_stage import ANSWER, Driven, GapRecorder
    from tests.helpers.word_encoder import words_of

    text = ANSWER * (LONG_TOKENS // len(words_of(ANSWER)) + 1)
    with Driven(script=lambda _submit: text, tokens_per_s=2000.0) as driven:
        (tab,) = driven.open_tabs(1)
        driven.window.submit_text(tab, "Tell me everything about paging.")
        driven.run(0.5)
        recorder = GapRecorder()
        recorder.start()
        driven.wait(lambda: not driven.session.is_busy(tab))
        recorder.stop()
        answer = driven.session.conversation(tab).path()[-1]
        assert answer.content == text.rstrip()
        return _gaps(recorder.gaps_ms) | {"characters": len(text)}


def _lengths(driven: Any, tabs: list[str]) -> list[int]:
    return [len(driven.session.conversation(tab).path()[-1].content) for tab in tabs]


def _gaps(gaps_ms: list[float]) -> Figures:
    from tests.benchmarks.gui_window_stage import percentile

    return {
        "gap_p50_ms": round(percentile(gaps_ms, 0.5), 1),
        "gap_p99_ms": round(percentile(gaps_ms, 0.99), 1),
        "gap_max_ms": round(max(gaps_ms), 1),
        "gaps": len(gaps_ms),
    }


def type_while_streaming() -> Figures:
    """Keys into the composer below 500 messages while the 501st streams: from the moment that the
    key was due to the end of the painting that shows it.
    """
    from tests.benchmarks.gui_keys import KeyTimer
    from tests.benchmarks.gui_window_stage import ANSWER, Driven, conversation, percentile

    stored = [conversation("Long", 250, ANSWER, is_open=True)]
    with Driven(stored) as driven:
        tab = stored[0].conversation_id
        page = driven.window.tab_area.page(tab)
        driven.window.submit_text(tab, "And one more?")
        driven.run(1.5)
        timer = KeyTimer(driven.window, page.composer.edit)
        times = [timer.press() for _ in range(KEYS)]
        assert len(page.composer.text()) == KEYS
        assert driven.session.is_busy(tab)
        return {
            "p50_ms": round(percentile(times, 0.5), 1),
            "p95_ms": round(percentile(times, 0.95), 1),
            "max_ms": round(max(times), 1),
            "messages": len(page.transcript.items),
        }


def big_texts() -> dict[str, tuple[str, bool]]:
    """(text, whether the user wrote it) of 1.2 MB each, by what they are."""
    from tests.benchmarks.gui_window_stage import ANSWER

    code = "".join(f"value_{n} = compute({n}, 'text')  # note\n" for n in range(BIG_CHARS // 40))
    code = code[:BIG_CHARS]
    row = "| 1234 | some words | 5678 |\n"
    return {
        "mixed": (ANSWER * (BIG_CHARS // len(ANSWER)), False),
        "one fence": (f"```python\n{code}```\n", False),
        "one line": ("word " * (BIG_CHARS // 5), False),
        "one list": ("- item with some words in it\n" * (BIG_CHARS // 29), False),
        "one table": ("| a | b | c |\n|---|---|---|\n" + row * (BIG_CHARS // 28), False),
        "one quote": ("> quoted words of a text\n" * (BIG_CHARS // 25), False),
        "typed": (code, True),
        "typed in one line": ("word " * (BIG_CHARS // 5), True),
    }


def open_big() -> Figures:
    """From the click on a conversation with a message of 1.2 MB to its first whole painting, and
    the longest gap of the loop while it is scrolled through afterwards.
    """
    from app.conversation import ASSISTANT, USER, Conversation, Message
    from tests.benchmarks.gui_window_stage import Driven, GapRecorder

    stored = {}
    for name, (text, is_typed) in big_texts().items():
        made = stored[name] = Conversation(title=name, is_open=False)
        made.append(Message(USER, text if is_typed else "Everything?"))
        if not is_typed:
            made.append(Message(ASSISTANT, text))
    open_ms, scroll_gap_ms = {}, {}
    with Driven(list(stored.values())) as driven:
        driven.run(0.5)
        for name, made in stored.items():
            started = time.perf_counter()
            driven.window.show_conversation(made.conversation_id)
            driven.window.repaint()
            page = driven.window.tab_area.current_page
            page.transcript.viewport().repaint()
            open_ms[name] = round((time.perf_counter() - started) * 1000.0, 1)
            assert page.transcript.page.visible(*_seen(page.transcript))[-1][1]
            recorder = GapRecorder()
            recorder.start()
            bar = page.transcript.verticalScrollBar()
            for share in (0.9, 0.5, 0.1, 0.0, 1.0):
                page.transcript.scroll_by(share * bar.maximum() - bar.value())
                driven.run(0.1)
            recorder.stop()
            scroll_gap_ms[name] = round(max(recorder.gaps_ms), 1)
            driven.session.close_conversation(made.conversation_id)
    return {"open_ms": open_ms, "scroll_gap_ms": scroll_gap_ms}


def _seen(transcript: Any) -> tuple[float, float]:
    y = float(transcript.verticalScrollBar().value())
    return y, y + transcript.viewport().height()


def open_and_close() -> Figures:
    """Resident memory after a hundred tabs that were opened, streamed into and closed."""
    import psutil

    from tests.benchmarks.gui_window_stage import Driven

    process = psutil.Process()

    def rounds(driven: Driven, times: int) -> float:
        for number in range(times):
            tab = driven.window.new_tab()
            driven.window.submit_text(tab, f"Question {number}?")
            driven.run(0.15)
            driven.window.tab_area.close_conversation(tab)
        driven.run(0.6)
        gc.collect()
        return process.memory_info().rss / 1e6

    with Driven() as driven:
        before = rounds(driven, WARM_ROUNDS)
        after = rounds(driven, ROUNDS)
    return {"rss_growth_mb": round(after - before, 1), "rss_mb": round(after, 1)}


if __name__ == "__main__":
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    sys.exit("python tests/benchmarks/gui.py window")
