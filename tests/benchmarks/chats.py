"""Eight conversations at once against the same ones after another through transformers."""

from __future__ import annotations

import torch

from engine.api.params import ChatMessage
from engine.loading.model_folder import open_model
from tests.benchmarks.contestants import OneAtATime, Quire, Run, Transformers, side_by_side
from tests.benchmarks.options import Options, model_path, models_dir
from tests.benchmarks.report import emit

NEW_TOKENS = 96
SYSTEM = (
    "You are a patient assistant who explains things to people without special knowledge. Answer "
    "in complete sentences and in plain words, the most important fact first. Give one example "
    "that everybody knows from daily life. Say so when something is not known or when experts "
    "disagree. Do not repeat the question, do not use lists, and stay friendly throughout."
)
QUESTIONS = (
    "Why does the sea taste of salt, but rivers do not?",
    "How does a clock with a pendulum keep the time?",
    "What happens in the brain while we sleep?",
    "Can you tell me why bread gets hard and biscuits get soft when they lie around?",
    "I want to grow tomatoes on a balcony in a cold city. What do I have to look out for?",
    "How do aeroplanes stay in the air although they are so heavy?",
    "Please explain how interest on a loan is worked out.",
    "Why do we see lightning before we hear the thunder?",
)


def speedup(options: Options) -> float:
    """Tokens a second of all conversations together, over transformers' one at a time.

    Both compute the shared system prompt in each run: the cache is dropped before.
    """
    path, folder = model_path(options), models_dir(options)
    quire = Quire(path, folder, num_blocks=2048)
    files = open_model(path, folder)
    both = [quire, OneAtATime(Transformers(files, quire.dtype))]
    system = ChatMessage("system", SYSTEM)
    questions = QUESTIONS[:2] if options.small else QUESTIONS
    prompts = [
        list(quire.encoder.encode([system, ChatMessage("user", question)]).token_ids)
        for question in questions
    ]
    new_tokens = 8 if options.small else NEW_TOKENS
    repeats = options.repeats or (1 if options.small else 5)
    for contestant in both:
        contestant.generate(prompts[:1], 8)

    def fresh() -> list[list[int]]:
        quire.core.pool.drop_cached("benchmark")
        return prompts

    def rate(run: Run) -> float:
        return len(prompts) * new_tokens / run.last_s

    title = f"{len(prompts)} conversations, {new_tokens} tokens each"
    ours, ratio = side_by_side(title, both, repeats, fresh, new_tokens, rate)
    emit(
        {
            "workload": "seeds",
            "part": "conversations",
            "model": files.config.name,
            "dtype": quire.dtype,
            "threads": torch.get_num_threads(),
            "conversations": len(prompts),
            "prompt_tokens": sum(len(prompt) for prompt in prompts),
            "new_tokens": new_tokens,
            "repeats": repeats,
            "tok_s": ours,
            "transformers_tok_s": ours / ratio,
            "speedup_vs_transformers": ratio,
        }
    )
    return ratio
