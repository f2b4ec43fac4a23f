"""``schedule() -> submit() -> commit()``, one step after another, and what a broken step costs.
No torch.

With lag 1 a step is committed only after the next one has been submitted, so the scheduler may run
while the newest token is still a placeholder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.api.errors import EngineError, InternalError, OutOfMemoryError
from engine.block_manager import BlockManager
from engine.flights import Flight, Flights
from engine.ledger import RequestLedger
from engine.limits import describe_failure, raise_if_lost
from engine.metrics import EngineMetrics
from engine.request import Phase, Request
from engine.scheduler import Scheduler
from engine.scheduler_output import Runner, SampledTokens, SchedulerOutput

_STEP_FAILED = "a step failed"


class StepLoop:
    """Runs steps and hands their results to the requests.

    ``lag``: how many steps may be in flight when the next one is submitted.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        manager: BlockManager,
        ledger: RequestLedger,
        runner: Runner,
        metrics: EngineMetrics,
        lag: int,
        clock: Callable[[], float],
    ) -> None:
        self.flights = Flights()
        self.num_steps = 0
        self._nothing_scheduled = False
        self._committing: Flight | None = None
        self._last_commit_s = 0.0
        self._scheduler = scheduler
        self._manager = manager
        self._ledger = ledger
        self._runner = runner
        self._metrics = metrics
        self.lag = lag
        self._clock = clock

    @property
    def is_stuck(self) -> bool:
        """Requests wait, but the last step found nothing to compute and none is in flight."""
        return self._nothing_scheduled and not self.flights and self._scheduler.has_work

    def step(self) -> None:
        """Submits a step and commits those that are older than the lag, or all if there is none to
        submit or the scheduler is held.
        """
        try:
            submitted = not self._scheduler.held and self._submit()
            while self.flights and (len(self.flights) > self.lag or not submitted):
                self._commit(self.flights.popleft())
        except Exception as error:
            self._begin_anew(error)

    def drain(self) -> None:
        """Commits all steps in flight."""
        try:
            while self.flights:
                self._commit(self.flights.popleft())
        except Exception as error:
            self._begin_anew(error)

    @contextmanager
    def keeping_order(self) -> Iterator[None]:
        """Around a change between two steps: if it breaks off in the middle, all begin anew.

        An ``EngineError`` is a refusal, made before anything was changed.
        """
        try:
            yield
        except EngineError:
            raise
        except Exception as error:
            self._begin_anew(error)
            raise

    def _submit(self) -> bool:
        output = self._scheduler.schedule()
        num_ended = self._ledger.report_notes()
        self._nothing_scheduled = output.num_tokens == 0 and not num_ended
        if output.num_tokens == 0:
            return False
        self.num_steps += 1
        now = self._clock()
        try:
            handle = self._runner.submit(output)
        except Exception as error:
            # Steps submitted before this one are sound.
            while self.flights:
                self._commit(self.flights.popleft())
            self._fail_step(output, error)
            return False
        self.flights.launch(output, handle, now)
        return True

    def _commit(self, flight: Flight) -> None:
        self._committing = flight
        output = flight.output
        try:
            result = flight.handle.result()
        except Exception as error:
            for chunk in output.chunks:
                self._scheduler.queues.step_committed(chunk.request)
            self._committing = None
            self._fail_step(output, error)
            return
        now = self._clock()
        sampling = []
        guard, queues = self._scheduler.guard, self._scheduler.queues
        answers, commit = self._ledger.answers, self._manager.commit
        guard.step_succeeded()
        bad = {sample.request_id for sample in result.samples if sample.error}
        for chunk in output.chunks:
            request = chunk.request
            if request.phase is not Phase.FINISHED:
                commit(request, chunk.start, chunk.num_tokens, output.step)
                progress = answers[request.request_id].computed(chunk, now)
                if progress is not None:
                    self._ledger.events.append(progress)
            if chunk.samples:
                if guard.has_suspects:
                    guard.clear(request)
                sampling.append(request)
                if request.request_id in bad:
                    # Whoever asks again must not be given the same KV, whether or not this one is
                    # still there to be told: its blocks may go back now.
                    self._manager.doubt(request, "error")
            queues.step_committed(request)
        num_prefill = output.num_tokens - len(output.decodes)
        # A step submitted while another was computing began when that one was done.
        duration = now - max(flight.started_s, self._last_commit_s)
        self._last_commit_s = now
        padded = self._runner.prompt_size(num_prefill)
        self._metrics.record_step(duration, len(output.decodes), num_prefill, padded)
        num_accepted = 0
        for request, index, sample in zip(
            sampling, flight.sample_index, result.samples, strict=True
        ):
            if request.phase is not Phase.FINISHED:
                num_accepted += self._accept(request, index, sample, now)
        self._metrics.record_output(now, num_accepted)
        self._committing = None

    def _accept(self, request: Request, index: int, sample: SampledTokens, now: float) -> int:
        """Takes what a request drew; returns how many tokens of it are output."""
        if sample.error:
            self._ledger.fail(request, InternalError(sample.error).info())
            return 0
        (token_id,) = sample.token_ids
        request.token_ids[index] = token_id
        request.tokens_since_admission += 1
        answer = self._ledger.answers[request.request_id]
        try:
            self._ledger.events.append(answer.accept(token_id, sample, now))
        except Exception as error:
            # Whatever is wrong with this one's text, the others go on.
            self._ledger.fail(request, describe_failure(error))
            return 0
        ending = answer.ending(token_id)
        if ending is not None:
            self._ledger.finish(request, ending, "finish")
        return 1

    # --- failures ---

    def _fail_step(self, output: SchedulerOutput, error: Exception) -> None:
        """A step broke off: none of its blocks is published, and at most one request ends by it.

        All that were in it are computed again, one at a time, and of those the one that fails alone
        ends. When memory ran out, steps become smaller first.

        Raises:
            DeviceLostError: no step can succeed any more.
        """
        raise_if_lost(error)
        requests = self._abandon_flights(output)
        info = describe_failure(error)
        guard = self._scheduler.guard
        smaller = False
        if info.code == OutOfMemoryError.code:
            self._manager.pool.drop_cached("out of memory")
            smaller = guard.shrink_budget()
        if len(requests) == 1 and not smaller:
            self._ledger.fail(requests[0], info)
        else:
            self._scheduler.recompute(requests, _STEP_FAILED)
            guard.suspect(requests)
        self._ledger.report_notes()

    def _abandon_flights(self, output: SchedulerOutput) -> list[Request]:
        """Takes back every step in flight. Returns the live requests of ``output``."""
        broken = [output, *(flight.output for flight in self.flights)]
        built_on_it = self.flights.abandon()
        for request in built_on_it:
            self._scheduler.queues.step_committed(request)
        failed = [chunk.request for chunk in output.chunks]
        for request in (*failed, *built_on_it):
            request.drop_placeholders()
        # Others may share a block that such a step was to fill with a copy.
        uncopied = {destination for step in broken for _, destination in step.block_copies}
        readers = [r for r in self._scheduler.running if not uncopied.isdisjoint(r.block_table)]
        lost = dict.fromkeys((*built_on_it, *(r for r in readers if r not in failed)))
        self._scheduler.recompute(list(lost), _STEP_FAILED)
        # Before one of them may end: of a request that is over nothing more is told.
        self._ledger.report_notes()
        return [request for request in failed if request.phase is not Phase.FINISHED]

    def _begin_anew(self, error: Exception) -> None:
        """The books themselves broke, in the middle of a change: nothing in them is trusted.

        All blocks are given up and every request is computed again, one at a time; of those the one
        with which it happens again ends.

        Raises:
            DeviceLostError: no step can succeed any more.
        """
        raise_if_lost(error)
        self._metrics.num_begun_anew += 1
        flown = {request: None for request in self.flights.abandon()}
        if self._committing is not None:
            flown |= {chunk.request: None for chunk in self._committing.output.chunks}
            self._committing = None
        for request in flown:
            if request.phase is Phase.FINISHED:
                self._manager.disown(request)
        if self._ledger.ending is not None:
            self._manager.disown(self._ledger.ending)
            self._ledger.ending = None
        guard = self._scheduler.guard
        culprit = guard.first_suspect
        if culprit is not None and culprit.phase is Phase.FINISHED:
            # It ended in the step that broke off afterwards: somebody else's doing.
            culprit = None
        requests = list(self._ledger.requests.values())
        self._scheduler.reset(requests, "the cache's books were set up anew")
        self._ledger.pins_lost()
        for request in requests:
            request.drop_placeholders()
        self._ledger.report_notes()
        if culprit is not None:
            self._ledger.fail(culprit, describe_failure(error))
        else:
            guard.suspect(requests)
