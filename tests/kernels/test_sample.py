"""The sampling kernels draw what the reference draws."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

triton = pytest.importorskip("triton")

from kernels.launch import SampleLaunch  # noqa: E402 - only where Triton is
from kernels.reference.gumbel import GROUP, group_sums  # noqa: E402
from kernels.reference.sample import (  # noqa: E402
    PROMPT_COUNT,
    RowParameters,
    cut,
    draw,
    pack,
    unpack,
)
from kernels.reference.sample import sample as reference  # noqa: E402
from kernels.sample import sample  # noqa: E402
from kernels.sample_buffers import SampleBuffers  # noqa: E402

ON_GPU = torch.cuda.is_available()
VOCAB = 151_936 if ON_GPU else 700
# The interpreter's time goes by operations: small chunks, and a list that most cuts do not fit.
SMALL = (
    None
    if ON_GPU
    else SampleLaunch(chunk=256, list_size=16, num_warps=4, draw_warps=4, sort_warps=4)
)
SPREADS = [0.05, 1.0, 6.0]
CHOICES = [
    {"top_k": 5},
    {"top_p": 0.9},
    {"top_k": 40, "top_p": 0.8},
    {"min_p": 0.05},
    {"top_p": 0.3, "min_p": 0.1},
    {"top_k": 300, "top_p": 0.95},
    {"top_k": 1_000_000, "top_p": 0.999},
]
DTYPES = [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]


def packed(rows, device):
    return torch.from_numpy(pack(rows)).to(device)


def check(logits, rows, device, counts=None, **choices):
    """Draws with both, compares all that comes back, returns the reference's tokens."""
    expected_counts = None if counts is None else counts.clone()
    expected = reference(logits, packed(rows, "cpu"), expected_counts, logprobs=True)
    own_counts = None if counts is None else counts.to(device)
    drawn = sample(
        logits.to(device), packed(rows, device), own_counts, logprobs=True, launch=SMALL, **choices
    )
    assert drawn.tokens.cpu().tolist() == expected.tokens.tolist()
    finite = expected.best.isfinite()
    assert torch.equal(drawn.best.cpu()[finite], expected.best[finite])
    assert torch.allclose(drawn.logprobs.cpu()[finite], expected.logprobs[finite], atol=1e-4)
    if counts is not None:
        assert torch.equal(own_counts.cpu(), expected_counts)
    return expected.tokens.tolist()


def logits_of(spreads, dtype=torch.float32):
    return (torch.randn(len(spreads), VOCAB) * torch.tensor(spreads)[:, None]).to(dtype)


def rows_of(count, **choices):
    return [
        RowParameters(2**63 + 17 * i, 3 * i + 2**33 * (i % 2), 0.4 + 0.3 * i, **choices)
        for i in range(count)
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_temperature_alone(dtype, device):
    check(logits_of([0.0, *SPREADS], dtype), rows_of(4), device, filtered=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_cuts(choices, dtype, device):
    if dtype is torch.float16 and not ON_GPU and "top_k" in choices:
        pytest.skip("float16 differs in the load alone; the interpreter is slow")
    check(logits_of(SPREADS, dtype), rows_of(3, **choices), device)


@pytest.fixture
def made(monkeypatch):
    """The buffers of every call."""
    calls = []

    class Recorded(SampleBuffers):
        def __init__(self, *args):
            super().__init__(*args)
            calls.append(self)

    monkeypatch.setattr("kernels.sample.SampleBuffers", Recorded)
    return calls


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_the_cut_itself(choices, device, made):
    """One draw hardly ever lands on the last token that stays: the bound is looked at."""
    logits, rows = logits_of([0.3, 1.0, 6.0]), rows_of(3, **choices)
    sample(logits.to(device), packed(rows, device), launch=SMALL)
    for row, scores, bound in zip(rows, logits, made[0].bounds.tolist(), strict=True):
        relative = (scores - scores.max()) / torch.tensor(row.temperature)
        kept = int((relative >= bound).sum())
        cut(relative, row)
        expected = int(relative.isfinite().sum())
        # Sums of some thousand scores differ in their last bits.
        assert abs(kept - expected) <= expected // 5000


@pytest.mark.parametrize("choices", [{}, {"top_k": 40}, {"min_p": 0.3}], ids=str)
def test_the_sums_of_the_groups(choices, device, made):
    """A few draws do not tell a sum that is a little wrong."""
    logits, rows = logits_of(SPREADS), rows_of(3, **choices)
    logits[1, :600] = -math.inf
    sample(logits.to(device), packed(rows, device), filtered=bool(choices), launch=SMALL)
    best = logits.amax(-1, keepdim=True)
    temperatures = torch.tensor([row.temperature for row in rows])[:, None]
    relative = (logits - best) / temperatures
    if choices:
        for scores, row in zip(relative, rows, strict=True):
            cut(scores, row)
    found = made[0].group_sum.view(3, -1).log().cpu()
    found += (made[0].group_best.view(3, -1).cpu() - best) / temperatures
    expected = group_sums(relative.double()).log().float()
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_equal_scores_stay_or_go_together(device):
    logits = torch.full((3, VOCAB), -50.0)
    logits[:, 100:160] = 1.0
    logits[:, 200:260] = 0.5
    logits[:, 17] = 2.0
    rows = [
        RowParameters(1, 0, 1.0, top_k=2),
        RowParameters(2, 0, 1.0, top_k=62),
        RowParameters(3, 0, 1.0, top_p=0.5),
    ]
    check(logits, rows, device)


def test_one_token_and_none_above_it(device):
    logits = torch.full((2, VOCAB), -math.inf)
    logits[0, 3] = 0.0
    logits[1, VOCAB - 1] = -1e30
    assert check(logits, rows_of(2), device, filtered=False) == [3, VOCAB - 1]
    assert check(logits, rows_of(2, top_p=0.5), device) == [3, VOCAB - 1]


def test_filters_at_their_ends(device):
    """A top-p of 0 leaves the best token, a top-k that 32 bits do not hold all of them."""
    choices = [
        {"top_p": 0.0}, {"top_p": 1e-50}, {"top_p": 0.0, "top_k": 5}, {"min_p": 1.0}, {"top_k": 1},
        {"top_k": 2**32 + 1, "top_p": 0.9}, {"top_k": 2**70, "top_p": 0.9},
    ]  # fmt: skip
    rows = [RowParameters(5, i, 0.9, **choice) for i, choice in enumerate(choices)]
    logits = logits_of([3.0] * len(rows))
    assert check(logits, rows, device)[:5] == logits[:5].argmax(-1).tolist()
    free = [replace(row, top_k=0) for row in rows[5:]]
    assert check(logits[5:], rows[5:], device) == check(logits[5:], free, device)


@pytest.mark.parametrize("choices", [{}, *CHOICES], ids=str)
def test_a_temperature_that_float32_does_not_hold(choices):
    scores = logits_of([1.0])
    row = RowParameters(1, 0, 1e-50, **choices)
    assert draw(scores, scores.amax(-1), [row]) == scores.argmax(-1).tolist()


def test_greedy_rows_take_the_first_of_the_best(device):
    logits = logits_of([1.0, 1.0])
    logits[:, [5, 300, VOCAB - 1]] = 30.0
    rows = [RowParameters(1, 0, 0.0), RowParameters(1, 0, 0.0, top_k=7, top_p=0.1)]
    assert check(logits, rows, device) == [5, 5]


def test_rows_that_are_not_finite_get_no_token_and_leave_others_alone(device):
    logits = logits_of([1.0] * 5)
    logits[1, 600] = math.nan
    logits[2, 600] = math.inf
    logits[3] = -math.inf
    rows = rows_of(5, top_k=3)
    tokens = check(logits, rows, device)
    assert tokens[1:4] == [-1, -1, -1]
    assert check(logits[[0, 4]], [rows[0], rows[4]], device) == [tokens[0], tokens[4]]


def test_penalties_and_the_count_of_the_drawn_token(device):
    logits = logits_of([1.0, 2.0, 1.0, 2.0])
    counts = torch.zeros((3, VOCAB), dtype=torch.int32)
    counts[:, ::3] += PROMPT_COUNT
    counts[:, ::5] += 2
    rows = [
        RowParameters(1, 4, 0.8, repetition_penalty=1.7, count_slot=2),
        RowParameters(2, 4, 0.0, presence_penalty=0.9, frequency_penalty=0.3, count_slot=0),
        RowParameters(3, 4, 0.8),
        RowParameters(
            4, 4, 0.8, top_p=0.9, repetition_penalty=0.8, frequency_penalty=-0.2, count_slot=1
        ),
    ]
    check(logits, rows, device, counts)


def test_a_row_does_not_depend_on_its_neighbours(device):
    logits, rows = logits_of(SPREADS), rows_of(3)
    together = sample(logits.to(device), packed(rows, device), launch=SMALL).tokens.tolist()
    for i in range(3):
        alone = sample(logits[i : i + 1].to(device), packed([rows[i]], device), launch=SMALL)
        assert alone.tokens.tolist() == [together[i]]


@pytest.mark.parametrize("vocab", [1, 5, GROUP, GROUP + 1, 1000])
def test_vocabularies_of_all_sizes(vocab, device):
    rows = 400 if ON_GPU else 20
    parameters = [RowParameters(7919 * i, i, [1e-3, 0.7, 1.0, 100.0][i % 4]) for i in range(rows)]
    logits = torch.randn(rows, vocab)
    # Some groups without any token that may be drawn.
    logits[: rows // 2, : vocab // 2] = -math.inf
    check(logits, parameters, device, filtered=False)


def test_many_draws_from_what_filters_leave(device):
    rows, vocab = 400 if ON_GPU else 14, 2 * GROUP + 61
    parameters = [
        replace(RowParameters(31 * i, i, 0.9), **CHOICES[i % len(CHOICES)]) for i in range(rows)
    ]
    logits = torch.randn(rows, vocab)
    # What is left lies in one group, and none of it in the other chunk.
    logits[::3, GROUP:] -= 50.0
    check(logits, parameters, device)


def test_how_rows_are_cut_does_not_matter(device):
    rows = rows_of(3)
    logits = logits_of(SPREADS).to(device)
    drawn = [
        sample(logits, packed(rows, device), filtered=filtered, launch=launch).tokens.tolist()
        for filtered in (False, True)
        for launch in (None, SMALL, SampleLaunch(GROUP, 16, 4, 8, 4))
    ]
    assert drawn == [drawn[0]] * 6


def test_chunks_are_whole_groups(device):
    launch = SampleLaunch(GROUP // 2, list_size=16, num_warps=4, draw_warps=4, sort_warps=4)
    with pytest.raises(ValueError, match="no whole number of groups"):
        sample(logits_of([1.0]).to(device), packed(rows_of(1), device), launch=launch)


def test_parameters_survive_packing():
    row = RowParameters(2**64 - 3, 2**40, 0.5, 7, 0.25, 0.125, 1.5, -0.5, 0.75, 3)
    plain = RowParameters(5, 0)
    first, second = unpack(torch.from_numpy(pack([row, plain])))
    assert first.min_p == pytest.approx(row.min_p, rel=1e-6)
    assert [replace(first, min_p=row.min_p), second] == [row, plain]


def test_shapes_that_do_not_fit_are_refused(device):
    logits = logits_of([1.0, 1.0]).to(device)
    with pytest.raises(ValueError, match="parameters for 2 rows"):
        sample(logits, packed(rows_of(1), device))
    with pytest.raises(ValueError, match="counts of 5 tokens"):
        sample(logits, packed(rows_of(2), device), torch.zeros((1, 5), dtype=torch.int32))
    with pytest.raises(ValueError, match="contiguous"):
        sample(logits.t().contiguous().t(), packed(rows_of(2), device))


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("filtered", [False, True])
def test_all_numbers_of_rows_have_their_buffers_at_whole_lines(filtered, logprobs):
    """The kernels are compiled apart for pointers that are no multiples of 16 bytes."""
    launch = SampleLaunch(chunk=256, list_size=17, num_warps=4, draw_warps=4, sort_warps=4)
    for rows in range(1, 9):
        buffers = SampleBuffers(rows, 5001, launch, torch.device("cpu"), filtered, logprobs)
        parts = [part for part in vars(buffers).values() if isinstance(part, torch.Tensor)]
        parts = [part for part in parts if part.numel()]
        assert len(parts) == 5 + 7 * filtered + 2 * logprobs
        starts = sorted((part.data_ptr(), part.data_ptr() + part.nbytes) for part in parts)
        assert all(start % 16 == 0 for start, _ in starts)
        assert all(end <= later for (_, end), (later, _) in itertools.pairwise(starts))
        assert len(buffers.tokens) == len(buffers.best) == len(buffers.logprobs) == rows
        assert len(buffers.group_best) == len(buffers.group_sum) == rows * 40
