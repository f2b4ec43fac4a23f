"""What the library keeps and works out: places, tokens to read again, standing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.conversation import ASSISTANT, USER, Conversation, Message
from app.library.entry import ModelEntry
from app.library.places import Places
from app.library.rereading import Rereading, answered_by, rereading
from app.library.speeds import Speed
from app.library.status import Standing, standing_of
from app.session_state import ModelState, ModelStatus
from app.widgets.library.words import (
    cache_words,
    fit_words,
    parts_words,
    reread_words,
    size_words,
    speed_words,
)
from engine.api.errors import ErrorInfo
from engine.api.events import (
    RequestUsage,
)
from engine.api.model_files import ModelIdentity
from tests.helpers.library_stage import GB, MB, Kept, description

# --- places ---


class KeptPlaces(Kept):
    def places(self) -> Places:
        return Places(self.text, self.save)


def test_places_are_what_they_were_after_a_restart() -> None:
    kept = KeptPlaces()
    places = kept.places()
    places.add_folder("/models/我的")
    places.add_file("/a.gguf")
    places.remove("/b.gguf", is_in_folder=True)
    places.set_chat_template("/a.gguf", "chatml")
    again = kept.places()
    assert again.folders == ("/models/我的",)
    assert again.files == ("/a.gguf",)
    assert again.hidden == {"/b.gguf"}
    assert again.chat_templates == {"/a.gguf": "chatml"}


@pytest.mark.parametrize(
    "stored", ["{", "[]", '{"folders": 3}', '{"files": [1, null]}', '{"chat_templates": {"a": 1}}']
)
def test_a_damaged_list_of_places_is_an_empty_one(stored: str) -> None:
    places = Places(stored, lambda _text: None)
    assert (places.folders, places.files, dict(places.chat_templates)) == ((), (), {})


def test_a_folder_is_watched_once_however_it_is_written(tmp_path: Path) -> None:
    places = KeptPlaces().places()
    assert places.add_folder(str(tmp_path))
    assert not places.add_folder(str(tmp_path / "x" / ".."))
    assert len(places.folders) == 1


def test_a_removed_model_can_be_listed_again() -> None:
    places = KeptPlaces().places()
    places.remove("/models/a.gguf", is_in_folder=True)
    places.show("/models/a.gguf")
    assert (places.hidden, places.files) == (frozenset(), ())


def test_a_removed_model_that_is_opened_elsewhere_is_listed_by_itself() -> None:
    places = KeptPlaces().places()
    places.remove("/disk/a.gguf", is_in_folder=True)
    places.add_file("/disk/a.gguf")
    assert (places.hidden, places.files) == (frozenset(), ("/disk/a.gguf",))


# --- what is read again ---


def talk(model: str, prompt: int, output: int) -> Conversation:
    made = Conversation(title="Talk", number=1)
    made.append(Message(USER, "question"))
    answer = Message(ASSISTANT, "answer", model=model)
    answer.usage = RequestUsage(prompt_tokens=prompt, output_tokens=output)
    made.append(answer)
    return made


def test_the_last_answer_tells_how_many_tokens_a_conversation_has() -> None:
    first, second = talk("A", 100, 20), talk("B", 30, 5)
    assert rereading([first, second, Conversation()], 0) == Rereading(2, 155)


def test_a_question_that_has_no_answer_yet_changes_nothing() -> None:
    conversation = talk("A", 100, 20)
    conversation.append(Message(USER, "more"))
    assert rereading([conversation], 120) == Rereading(1, 120)


def test_an_answer_that_is_being_written_counts_as_far_as_it_has_come() -> None:
    conversation, other = talk("A", 100, 20), talk("B", 30, 5)
    conversation.append(Message(USER, "more"))
    answer = conversation.append(Message(ASSISTANT, "so far"))
    so_far = {answer.message_id: 2600, "of a branch that is not shown": 9000}
    assert rereading([conversation, other], 2000, so_far) == Rereading(2, 2635, 1)


def test_conversations_longer_than_the_context_are_counted() -> None:
    conversations = [talk("A", 100, 20), talk("A", 100, 21), talk("A", 500, 0)]
    assert rereading(conversations, 120).num_too_long == 2


def test_conversations_are_with_the_model_that_answered_last() -> None:
    first, second = talk("A", 100, 20), talk("B", 30, 5)
    assert answered_by([first, second, Conversation()], "A") == [first]


# --- standing ---

ENTRY = ModelEntry("/a.gguf", "/", ModelIdentity(1, 1), description=description("/a.gguf"))


@pytest.mark.parametrize(
    ("entry", "state", "error", "standing"),
    [
        (ENTRY, ModelState(), None, Standing.PLAIN),
        (ENTRY, ModelState(ModelStatus.READY, path="/a.gguf"), None, Standing.LOADED),
        (ENTRY, ModelState(ModelStatus.LOADING, path="/a.gguf"), None, Standing.LOADING),
        (ENTRY, ModelState(ModelStatus.READY, path="/b", next_path="/a.gguf"), None, Standing.NEXT),
        (
            ENTRY,
            ModelState(ModelStatus.NO_MODEL, path="/a.gguf", is_asleep=True),
            None,
            Standing.ASLEEP,
        ),
        (ENTRY, ModelState(), ErrorInfo("model_file", "cut"), Standing.FAILED),
        (replace(ENTRY, exists=False), ModelState(), None, Standing.GONE),
        (replace(ENTRY, exists=False, is_starter=True), ModelState(), None, Standing.ABSENT),
        (
            replace(ENTRY, error=ErrorInfo("model_file", "cut")),
            ModelState(),
            None,
            Standing.UNREADABLE,
        ),
        (replace(ENTRY, description=None), ModelState(), None, Standing.UNKNOWN),
        (
            replace(ENTRY, description=description("/a.gguf", fits=False)),
            ModelState(),
            None,
            Standing.TOO_LARGE,
        ),
    ],
)
def test_how_a_model_stands(
    entry: ModelEntry, state: ModelState, error: ErrorInfo | None, standing: Standing
) -> None:
    assert standing_of(entry, "/a.gguf", state, error) is standing


# --- words ---


def test_the_estimate_in_words() -> None:
    about = description("/a.gguf")
    assert fit_words(about) == "4.9 GB of 16.0 GB free: fits."
    assert cache_words(about) == "61,440 tokens of cache (3,840 blocks): 7 tabs of 8,192."
    assert parts_words(about) == ("Weights 4.0 GB, workspace 900 MB, cache 64 MB per 1,000 tokens.")


def test_what_does_not_fit_says_what_is_missing() -> None:
    about = description("/a.gguf", fits=False, num_blocks=0, free_bytes=3 * GB)
    assert fit_words(about) == "4.9 GB, but only 3.0 GB are free: does not fit."


def test_tabs_are_never_longer_than_the_context() -> None:
    about = description("/a.gguf", context_length=2048)
    assert cache_words(about).endswith("30 tabs of 2,048.")


def test_the_cost_of_a_switch_is_said_with_a_time_only_where_one_is_known() -> None:
    cost = Rereading(4, 3210)
    plain = "Nothing is lost. 4 conversations, 3,210 tokens, are read again on their next answers."
    unknown = "How long that takes is known once it has answered here."
    assert reread_words(cost, Speed()) == f"{plain} {unknown}"
    assert unknown not in reread_words(Rereading(1, 60), Speed())
    assert reread_words(cost, Speed(0.0, 1284.0)) == f"{plain} That takes about 2.5 s in all."
    assert reread_words(cost, Speed(0.0, 100_000.0)) == plain
    assert reread_words(Rereading(), Speed()) == ""


def test_what_is_too_long_for_the_other_model_is_said_before() -> None:
    about = description("small.gguf", context_length=2048)
    words = reread_words(Rereading(4, 9000, 1), Speed(), about)
    said = "1 of them is longer than the 2,048 tokens that this model reads; what is left out is"
    assert f" {said} said before its next answer." in words


def test_a_speed_that_was_worked_out_is_only_about() -> None:
    assert speed_words(Speed(31.4, is_measured=True)) == "31 tokens/s, as measured here."
    assert speed_words(Speed(3.14)) == "About 3.1 tokens/s, judging by models that ran here."
    said = [speed_words(Speed(rate)).split()[1] for rate in (0.349, 9.96, 31.4, 357.0, 24_321.0)]
    assert said == ["0.3", "10", "31", "360", "24,000"]
    assert speed_words(Speed()) == ""


def test_sizes_have_the_digits_that_matter() -> None:
    small = [size_words(n) for n in (0, 1, 812, 1500, 9_960, 40_000, 999_499)]
    assert small == ["0 MB", "1 byte", "812 bytes", "1.5 KB", "10 KB", "40 KB", "999 KB"]
    large = [size_words(n) for n in (999_500, 2_500_000, 98 * MB, 999 * MB, 999_500_000, 4900 * MB)]
    assert large == ["1.0 MB", "2.5 MB", "98 MB", "999 MB", "1.0 GB", "4.9 GB"]


def test_places_are_json_that_anybody_can_read() -> None:
    kept = KeptPlaces()
    kept.places().add_folder("/models")
    assert json.loads(kept.text)["folders"] == ["/models"]
