"""What breaks paged engines, rows 27–33: drawing at its edges, stops, text and chat templates. Each
check is run once on the code as it is, and once for each fault with that fault planted in it.
"""

import json
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine import tokenizer as tokenizer_module
from engine.api.events import FinishReason
from engine.api.params import ChatMessage, SamplingParams, TurnTokens
from engine.chat_encoder import ChatEncoder
from engine.content_guard import ContentGuard
from engine.detokenizer import Detokenizer
from engine.step_loop import StepLoop
from engine.tokenizer import Tokenizer
from kernels.reference import sample as drawing
from kernels.reference.sample import RowParameters, pack
from tests.helpers.chat_models import CHAT_MODELS
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.faults import Case, Cases, Fault
from tests.helpers.hash_runner import reference_output
from tests.helpers.tiny_tokenizer import END_ID, byte_ids, tiny_tokenizer

CASES = Cases()
case = CASES.case
TINY = tiny_tokenizer()


@case(
    27,
    Fault(drawing, "sample", "healthy = best.isfinite()", "healthy = best == best"),
    Fault(drawing, "draw", "if row.filtered:", "if False:"),
)
def edges_of_the_filters_leave_a_token() -> None:
    draw = torch.Generator().manual_seed(27)
    logits = torch.randn(8, 300, generator=draw) * 3
    logits[5, 10:] = -torch.inf
    logits[6] = -torch.inf
    rows = [
        RowParameters(seed=1, output_index=0, top_k=1, top_p=0.8),
        RowParameters(seed=2, output_index=1, top_p=0.0),
        RowParameters(seed=3, output_index=2, min_p=1.0),
        RowParameters(seed=4, output_index=3, temperature=0.0),
        RowParameters(seed=5, output_index=4, top_k=3, top_p=0.9, min_p=0.2),
        RowParameters(seed=6, output_index=5, top_k=20, top_p=0.99),
        RowParameters(seed=7, output_index=6, temperature=0.7),
        RowParameters(seed=8, output_index=7, temperature=100.0, top_k=2),
    ]
    drawn = drawing.sample(logits, torch.from_numpy(pack(rows))).tokens.tolist()
    best = logits.argmax(-1).tolist()
    assert drawn[:4] == best[:4]
    assert drawn[4] in logits[4].topk(3).indices.tolist()
    assert drawn[5] < 10
    assert drawn[6] == -1
    assert drawn[7] in logits[7].topk(2).indices.tolist()


@case(28, Fault(Detokenizer, "_release", "length = self._alive(text)", "length = 0"))
def start_of_a_stop_string_is_never_shown() -> None:
    detokenizer = Detokenizer(TINY, ("own fox",))
    shown = [detokenizer.feed([token]).text for token in byte_ids(b"the brown fox")]
    assert "".join(shown) + detokenizer.flush() == "the br"


@case(29, Fault(StepLoop, "_accept", "except Exception as error:", "except KeyError as error:"))
def text_that_breaks_ends_one_request() -> None:
    engine = CheckedEngine(20)
    for name, first in (("a", 0), ("b", 400)):
        engine.add(name, [first, first + 1, first + 2], max_tokens=9)
    for _ in range(3):
        engine.step()

    class Broken:
        def follow(self, token_ids: object) -> None:
            """Not a continued answer."""

        def feed(self, token_ids: object) -> object:
            raise UnicodeError("no such id")

        def flush(self) -> str:
            return ""

        def kept_tokens(self) -> tuple[int, int]:
            return 0, 0

    engine.core._ledger.answers["a"].stream = Broken()
    engine.run(100)
    assert engine.finished("a").reason is FinishReason.ERROR
    assert engine.output("b") == reference_output([400, 401, 402], 9)


@case(
    30,
    Fault(
        Detokenizer,
        "_take",
        "self._decoder.decode(token_bytes)",
        "token_bytes.decode('utf-8', 'replace')",
    ),
    Fault(
        Detokenizer,
        "_take",
        "shown = self._release(self._held + text)",
        "shown = self._release(text)",
    ),
)
def deltas_only_append_and_make_the_whole() -> None:
    draw = random.Random(30)
    for _ in range(60):
        text = "".join(draw.choice("ab 你好é👍\n") for _ in range(draw.randint(1, 12)))
        ids = byte_ids(text.encode())
        detokenizer = Detokenizer(TINY, ("好b", "never"))
        shown = ""
        for token in ids:
            shown += detokenizer.feed([token]).text
        shown += detokenizer.flush()
        assert shown == text.split("好b")[0]


@case(31, Fault(Tokenizer, "from_folder", "*token_ids(generation)", ""))
def every_end_token_is_honoured() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = CHAT_MODELS[0]
        (folder / "tokenizer.json").write_text(model.tokenizer_json(), encoding="utf-8")
        plain = Tokenizer(model.tokenizer_json(), [], "")
        special = sorted(plain.special_tokens.values())
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"eos_token": model.ends[0]}), encoding="utf-8"
        )
        (folder / "generation_config.json").write_text(
            json.dumps({"eos_token_id": [special[1], special[2]]}), encoding="utf-8"
        )
        ends = Tokenizer.from_folder(folder, [special[0]]).eos_token_ids
        named = plain.token_id(model.ends[0])
        assert ends == {*special[:3], named}


@case(
    32,
    Fault(ChatEncoder, "usable_turn", "return turn", "return None"),
)
def history_is_what_was_fed_and_sampled() -> None:
    model = CHAT_MODELS[0]
    encoder, tokenizer = model.encoder(), model.tokenizer()
    question = [ChatMessage("user", "Hello")]
    prompt = encoder.encode(question)
    # Two tokens whose text alone would be encoded as another.
    sampled = [*tokenizer.encode_text("Hel"), *tokenizer.encode_text("lo again")]
    assert tokenizer.encode_text("Hello again") != sampled
    output = (*sampled, model.end_id())
    turn = TurnTokens(tuple(prompt.token_ids), output, 11, tokenizer.fingerprint)
    answer = ChatMessage("assistant", "Hello again", turn)
    following = model.encoder().encode([*question, answer, ChatMessage("user", "And?")])
    fed = [*prompt.token_ids, *output]
    assert following.token_ids[: len(fed)] == fed
    assert following.reencoded_tokens == 0
    # With ids of another model the text is encoded, and that is told.
    other = replace(answer, turn=replace(turn, fingerprint="another"))
    told = model.encoder().encode([*question, other, ChatMessage("user", "And?")])
    assert told.reencoded_tokens > 0


@case(
    33,
    Fault(
        tokenizer_module, "_build", "encode_special_tokens = True", "encode_special_tokens = False"
    ),
    Fault(
        ContentGuard,
        "escape",
        "self._texts.replace(content, self._code_of.__getitem__)",
        "content",
    ),
)
def control_tokens_in_a_message_are_text() -> None:
    for model in CHAT_MODELS:
        # A fresh one: a fault may lie in how it is built.
        tokenizer = Tokenizer(model.tokenizer_json(), [model.end_id()], model.name)
        encoder = ChatEncoder(tokenizer, model.template())
        control = set(tokenizer.special_tokens.values())
        spelt = [token for token in tokenizer.special_tokens if len(token) > 2]
        plain = encoder.encode([ChatMessage("user", "Hello there")]).token_ids
        for token in spelt:
            forged = f"\nHello {token} there{token}"
            ids = encoder.encode([ChatMessage("user", forged)]).token_ids
            count = sum(each in control for each in ids)
            assert count == sum(each in control for each in plain), (model.name, token)
            assert token in tokenizer.decode(ids, skip_special=True)


@pytest.mark.parametrize("each", CASES.all, ids=lambda each: f"{each.number}")
def test_case_holds(each: Case) -> None:
    each.holds()


@pytest.mark.parametrize(
    ("each", "fault"),
    CASES.with_faults,
    ids=[f"{each.number}-{fault.name}" for each, fault in CASES.with_faults],
)
def test_case_sees_its_fault(each: Case, fault: Fault) -> None:
    each.sees(fault)


def test_end_of_an_answer_is_the_tiny_models() -> None:
    assert END_ID in TINY.eos_token_ids
    assert SamplingParams().ignore_eos is False
