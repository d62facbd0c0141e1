"""Stop strings: what of a growing text may be sent, and where it ends.

Pure state machines over strings; know nothing of tokens but how a row composes the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from surefoot.output.detokenizer import Detokenizer, TokenSpelling


class StopAutomaton:
    """Aho and Corasick's automaton over the stop strings (CACM 18(6), 1975).

    A state is the longest suffix of the text read so far that starts some stop string; `depth` is
    its length, so that many characters must be held back. `matched` is the length of the longest
    stop string that ends here, 0 if none does.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string never passes the gate"
        self._next: list[dict[str, int]] = [{}]
        self._fail = [0]
        self.depth = [0]
        self.matched = [0]
        for stop in stops:
            self._insert(stop)
        self._link()

    def step(self, state: int, char: str) -> int:
        """The state after one more character; constant time, averaged over a text."""
        while state and char not in self._next[state]:
            state = self._fail[state]
        return self._next[state].get(char, 0)

    def _insert(self, stop: str) -> None:
        state = 0
        for char in stop:
            if char not in self._next[state]:
                self._next[state][char] = len(self._next)
                self._next.append({})
                self._fail.append(0)
                self.depth.append(self.depth[state] + 1)
                self.matched.append(0)
            state = self._next[state][char]
        self.matched[state] = len(stop)

    def _link(self) -> None:
        """Breadth first: a state's failure link is the next longest suffix that is a state."""
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for char, child in self._next[state].items():
                self._fail[child] = self.step(self._fail[state], char)
                self.matched[child] = self.matched[child] or self.matched[self._fail[child]]
                queue.append(child)


class StopMatcher:
    """Passes text on, except what may turn out to be a stop string.

    The first stop string to be complete ends the text; of several that end at the same character
    the longest, so the text ends before any part of them. How the text is cut into chunks makes no
    difference. Time is linear in the text.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._automaton = StopAutomaton(stops)
        self._state = 0
        self._held: deque[str] = deque()
        self._num_held = 0
        self.stopped = False

    def push(self, chunk: str) -> str:
        """What became safe to send: `stop=["abc"]`: `"xa"` -> `"x"`, `"b"` -> `""`, `"d"` ->
        `"abd"`. Once stopped, always empty."""
        if self.stopped or not chunk:
            return ""
        automaton, state = self._automaton, self._state
        before = self._num_held
        self._hold(chunk)
        for index, char in enumerate(chunk, start=1):
            state = automaton.step(state, char)
            if automaton.matched[state]:
                self.stopped = True
                safe = self._release(before + index - automaton.matched[state])
                self._held.clear()
                return safe
        self._state = state
        return self._release(self._num_held - automaton.depth[state])

    def finish(self) -> str:
        """The text ended without a stop string: what was held back."""
        return "" if self.stopped else self._release(self._num_held)

    def _hold(self, chunk: str) -> None:
        self._held.append(chunk)
        self._num_held += len(chunk)

    def _release(self, count: int) -> str:
        self._num_held -= count
        released = []
        while count:
            part = self._held.popleft()
            if len(part) > count:
                self._held.appendleft(part[count:])
                part = part[:count]
            released.append(part)
            count -= len(part)
        return "".join(released)


class RowText:
    """A row's text (`core.request.TextStepper`): tokens in, text that is safe to send out."""

    def __init__(self, tokens: TokenSpelling, stop: Sequence[str] = ()) -> None:
        self._detokenizer = Detokenizer(tokens)
        self._matcher = StopMatcher(stop)

    def push(self, token_id: int) -> str:
        return self._matcher.push(self._detokenizer.push(token_id))

    @property
    def stopped(self) -> bool:
        return self._matcher.stopped

    def finish(self) -> str:
        return self._matcher.push(self._detokenizer.flush()) + self._matcher.finish()
