"""Names and explanations of the settings, their sections and their choices."""

from __future__ import annotations

from app.i18n import LANGUAGES, tr
from app.setting_specs import Effect, Section, SettingSpec
from app.widgets.overflow_menu import policy_words

Words = tuple[str, str]


def section_words(section: Section) -> str:
    """The heading of a section."""
    return {
        Section.APPEARANCE: tr("Appearance"),
        Section.CONVERSATIONS: tr("Conversations"),
        Section.SAMPLING: tr("Sampling"),
        Section.ENGINE: tr("Engine"),
    }[section]


def setting_words(path: str) -> Words:
    """(name, explanation) of a setting."""
    name = path.rpartition(".")[2]
    for words in (_appearance_words(), _sampling_words(), _engine_words()):
        if name in words:
            return words[name]
    raise KeyError(path)


def effect_words(effect: Effect) -> str:
    """When a changed value counts; empty if it does at once."""
    return {
        Effect.AT_ONCE: "",
        Effect.NEW_CONVERSATIONS: tr("For new conversations."),
        Effect.NEXT_ANSWER: "",
        Effect.NEXT_LOAD: tr("Takes effect when the model is loaded again."),
    }[effect]


def choice_words(spec: SettingSpec) -> dict[str, str]:
    """What each choice of a setting is called."""
    known = {
        "theme": {
            "system": tr("Like the system"),
            "light": tr("Light"),
            "dark": tr("Dark"),
        },
        "language": {"system": tr("Like the system"), **LANGUAGES},
        "density": {"comfortable": tr("Comfortable"), "compact": tr("Compact")},
        "overflow": {policy.value: text for policy, text in policy_words().items()},
        "engine.backend": {
            "auto": tr("Automatic"),
            "dense": tr("Dense: nothing cached"),
            "contiguous": tr("Contiguous: one buffer an answer"),
            "paged_reference": tr("Paged, in PyTorch"),
            "paged_triton": tr("Paged, Triton kernels (GPU)"),
        },
        "engine.weights": {"packed": tr("Packed, as in the file"), "expanded": tr("Expanded")},
    }.get(spec.path, {})
    return {
        choice: known.get(choice, tr("Automatic") if choice == "auto" else choice)
        for choice in spec.choices
    }


def _appearance_words() -> dict[str, Words]:
    return {
        "theme": (tr("Theme"), ""),
        "language": (tr("Language"), ""),
        "density": (tr("Density"), tr("How much room rows and buttons take.")),
        "font_family": (tr("Font"), tr("Of the window and of messages. Empty: the system's font.")),
        "font_size": (tr("Font size"), tr("In points; 10 is usual. Everything grows with it.")),
        "code_font_family": (tr("Font of code"), tr("Empty: the system's fixed font.")),
        "overflow": (
            tr("When the context is full"),
            tr("Each conversation can choose otherwise in its own menu."),
        ),
        "notify_when_done": (
            tr("Notify when an answer is done"),
            tr("By a notification of the desktop, unless you look at the answer."),
        ),
    }


def _sampling_words() -> dict[str, Words]:
    return {
        "temperature": (
            tr("Temperature"),
            tr("How freely words are chosen: 0 always takes the likeliest, 1 is lively."),
        ),
        "top_k": (
            tr("Top-k"),
            tr("Chooses among this many likeliest tokens only; 0 is off."),
        ),
        "top_p": (
            tr("Top-p"),
            tr("Chooses among the likeliest tokens that together have this probability; 1 is off."),
        ),
        "min_p": (
            tr("Min-p"),
            tr("Leaves out tokens below this share of the likeliest one's; 0 is off."),
        ),
        "repetition_penalty": (
            tr("Repetition penalty"),
            tr("Above 1, words of the conversation become less likely; 1 is off."),
        ),
        "presence_penalty": (
            tr("Presence penalty"),
            tr("Above 0, words that the answer has used become less likely; 0 is off."),
        ),
        "frequency_penalty": (
            tr("Frequency penalty"),
            tr("The same, the more the more often they were used; 0 is off."),
        ),
        "max_tokens": (
            tr("Longest answer"),
            tr("In tokens. Empty: until the model ends it or the context is full."),
        ),
        "seed": (
            tr("Seed"),
            tr("The same seed gives the same answer to the same question. Empty: a new one each."),
        ),
        "stop": (
            tr("Stop strings"),
            tr("One a line; the answer ends before any of them. \\n stands for a new line."),
        ),
    }


def _engine_words() -> dict[str, Words]:
    return {
        "hub_endpoint": (
            tr("Address of the model hub"),
            tr("Models are fetched from there. Empty: HF_ENDPOINT, or huggingface.co."),
        ),
        "idle_unload_minutes": (
            tr("Free the memory when idle"),
            tr(
                "After this many minutes without a question; 0 is never. The next message loads "
                "the model again."
            ),
        ),
        "kv_cache_bytes": (
            tr("Memory of the block pool"),
            tr("For keys and values of all conversations. Empty: sized from the free memory."),
        ),
        "num_blocks": (
            tr("Blocks in the pool"),
            tr("Instead of an amount of memory. Empty: as many as the memory holds."),
        ),
        "gpu_memory_utilization": (
            tr("Share of the GPU's memory"),
            tr("At most this much is used for weights and pool together."),
        ),
        "block_size": (tr("Block size"), tr("Tokens in one block.")),
        "max_model_len": (
            tr("Longest context"),
            tr("In tokens. Empty: what the model was made for."),
        ),
        "max_running_requests": (
            tr("Answers at once"),
            tr("More than this wait (max_num_seqs)."),
        ),
        "token_budget": (
            tr("Tokens a step"),
            tr(
                "Prompts are read in pieces, so that answers go on beside them "
                "(max_num_batched_tokens)."
            ),
        ),
        "watermark": (
            tr("Reserve of the pool"),
            tr("Share of the pool that is kept free when another answer is let in."),
        ),
        "prefill_time_budget_ms": (
            tr("Time for prompts a step"),
            tr(
                "Milliseconds that reading a prompt may add to a step. Empty: as the device allows."
            ),
        ),
        "least_prefill_tokens": (
            tr("Least prompt tokens a step"),
            tr("However long they take: on a GPU fewer are not faster. Empty: as it deserves."),
        ),
        "prefix_caching": (
            tr("Prefix cache"),
            tr("Blocks stay after an answer, and what begins alike shares them."),
        ),
        "backend": (
            tr("Attention"),
            tr("How attention is computed. Another one drops the cache; answers go on."),
        ),
        "deterministic": (
            tr("Bit-exact answers"),
            tr("The same bits whatever else runs beside them; a little slower."),
        ),
        "shared_prefix_decode": (
            tr("Read a shared beginning once"),
            tr("On a GPU, where several answers have the same beginning."),
        ),
        "device": (tr("Device"), tr("Where the model runs.")),
        "dtype": (tr("Number format"), tr("Of weights and cache.")),
        "weights": (
            tr("Quantised weights"),
            tr("Of a GGUF file: packed take less memory. auto: packed where that is faster."),
        ),
        "lag": (
            tr("Steps in flight"),
            tr("0 or 1: the next step is prepared while one is computed. Empty: as it pays."),
        ),
        "num_threads": (tr("CPU threads"), tr("Empty: as many as the machine has cores.")),
        "cache_salt": (
            tr("Cache salt"),
            tr("Blocks are found again only under the same salt. Another one drops the cache."),
        ),
    }
