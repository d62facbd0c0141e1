"""Chat messages to prompt tokens, by the model's own template.

Owns the compiled template; knows nothing of HTTP. What the caller wrote never becomes a special
token (see `caller_text`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from datetime import datetime

from jinja2 import Template
from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError

from surefoot.errors import ContextLengthError, InvalidRequestError, ModelError
from surefoot.text.caller_text import ROLES, Disguise, Messages, disguised, strings_in
from surefoot.text.template.budget import RenderBudget, RenderLimitError, RenderLimits
from surefoot.text.template.sandbox import BUDGET, ChatSandbox, TemplateRaisedError
from surefoot.text.tokenizer import Tokenizer
from surefoot.text.vocabulary.special_text import Piece

log = logging.getLogger(__name__)

_GO_TEMPLATE = re.compile(r"\{\{-?\s*(?:if\s+|range\s+|with\s+)?(?:\$?\.[A-Z]|end\s*-?\}\})")
_TEMPLATE_WORDS = re.compile(r"'[\w.]+' is undefined|'(dict|list|str) object' has no \w+ '?\w+'?")
_PROBE = "surefoot probe"
OTHERWISE = "--chat-template FILE takes another"
"""What to do about a template that is refused."""
_MAX_MESSAGE = 500
"""Characters of a template's own message that go into an error."""


class ChatTemplate:
    """Compiled once; rendering is safe from several threads at once.

    `bos_text`, `eos_text`: what `bos_token` and `eos_token` mean in the template. `clock` answers
    the template's `strftime_now`. Raises `ModelError` for what is no Jinja template, with the
    template's error.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_text: str = "",
        eos_text: str = "",
        limits: RenderLimits | None = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._source = source
        self._template = _compile(source)
        self._bos_text = bos_text
        self._eos_text = eos_text
        self._limits = limits or RenderLimits()
        self._clock = clock

    @classmethod
    def from_gguf_metadata(
        cls, metadata: Mapping[str, object], by_hand: str | None = None
    ) -> ChatTemplate | None:
        """The template of the file, or another given by hand; None: chat is not served."""
        source = metadata.get("tokenizer.chat_template") if by_hand is None else by_hand
        if not isinstance(source, str) or not source.strip():
            return None
        return cls(
            source,
            bos_text=_token_text(metadata, "bos_token_id"),
            eos_text=_token_text(metadata, "eos_token_id"),
        )

    def render(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        """The prompt as text. Raises `InvalidRequestError` (param `messages`) with the template's
        own message if it refuses the messages, and if it fails, reaches out of the sandbox or
        renders without end."""
        return self._render(messages, add_generation_prompt, self._clock())

    def encode_chat(
        self,
        tokenizer: Tokenizer,
        messages: Messages,
        add_generation_prompt: bool = True,
        max_chars: int | None = None,
    ) -> list[int]:
        """The prompt as token ids. Markers that the template writes are special tokens; everything
        in the messages is plain text. A model that wants a begin token gets it once, whether the
        template writes it or not. Raises as `render`, and `ContextLengthError` where the prompt
        has more than `max_chars` characters."""
        pieces = self.pieces(tokenizer, messages, add_generation_prompt, max_chars)
        ids = tokenizer.encode_pieces(pieces)
        if tokenizer.add_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
            ids.insert(0, tokenizer.bos_id)
        return ids

    def pieces(
        self,
        tokenizer: Tokenizer,
        messages: Messages,
        add_generation_prompt: bool = True,
        max_chars: int | None = None,
    ) -> list[Piece]:
        """The prompt as plain text and special ids in turn.

        Rendered as it is, then in full disguise. The two agree, unless the template looks into
        the messages (is `</think>` in the content?) or alters them (upper case). Then the
        messages are rendered once more with only spellings of special tokens in disguise, and
        only markers that the template knows by name count. Raises as `encode_chat`: `max_chars` is
        held before the disguise, which takes a microsecond a character.
        """
        now = self._clock()
        plain = self._render(messages, add_generation_prompt, now)
        if max_chars is not None and len(plain) > max_chars:
            raise ContextLengthError(
                f"the prompt has {len(plain)} characters; no more than {max_chars} can fit the"
                " tokens it may have",
                param="messages",
            )
        splitter = tokenizer.splitter
        disguise = Disguise(splitter.texts, [plain, *strings_in(messages)])
        try:
            hidden = disguised(messages, disguise, disguise.hide)
            text = self._render(hidden, add_generation_prompt, now)
        except InvalidRequestError:
            text = ""
        if disguise.reveal(text) != plain:
            hidden = disguised(messages, disguise, disguise.hide_special)
            text = self._render(hidden, add_generation_prompt, now)
            splitter = splitter.limited_to(filter(self._knows, splitter.texts))
        return [
            piece if isinstance(piece, int) else disguise.reveal(piece)
            for piece in splitter.split(text)
        ]

    def _knows(self, special_text: str) -> bool:
        """The template spells it out, or by a role's name."""
        own = self._source + self._bos_text + self._eos_text
        return special_text in own or any(role in special_text for role in ROLES)

    def end_of_turn_ids(self, tokenizer: Tokenizer) -> frozenset[int]:
        """The special token that the template writes right after an assistant's text: it ends a
        reply, whatever the file calls its end token. Empty if there is none."""
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _PROBE}]
        try:
            text = self.render(turns, add_generation_prompt=False)
        except InvalidRequestError:
            return frozenset()
        _, probe, rest = text.rpartition(_PROBE)
        after = [piece for piece in tokenizer.splitter.split(rest) if piece != "\n"]
        end = after[0] if probe and after else None
        if not isinstance(end, int) or (end == tokenizer.bos_id != tokenizer.eos_id):
            return frozenset()
        return frozenset({end})

    def _render(self, messages: Messages, add_generation_prompt: bool, now: datetime) -> str:
        budget = RenderBudget(self._limits, sum(map(len, strings_in(messages))))
        try:
            return self._template.render(
                {
                    "messages": list(messages),
                    "add_generation_prompt": add_generation_prompt,
                    "bos_token": self._bos_text,
                    "eos_token": self._eos_text,
                    "tools": None,
                    "documents": None,
                    "strftime_now": now.strftime,
                    BUDGET: budget,
                }
            )
        except Exception as error:
            log.debug("chat template failed", exc_info=True)
            raise InvalidRequestError(_explain(error), param="messages") from None


def _token_text(metadata: Mapping[str, object], key: str) -> str:
    tokens = metadata.get("tokenizer.ggml.tokens")
    token_id = metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(tokens, list) or not isinstance(token_id, int):
        return ""
    return str(tokens[token_id]) if 0 <= token_id < len(tokens) else ""


def _compile(source: str) -> Template:
    try:
        return ChatSandbox().from_string(source)
    except TemplateSyntaxError as error:
        if _GO_TEMPLATE.search(source):
            raise ModelError(
                "the chat template is a Go template (Ollama's form), not a Jinja template; "
                + OTHERWISE
            ) from error
        raise ModelError(
            f"the chat template has an error in line {error.lineno}: {error.message}; {OTHERWISE}"
        ) from error
    except RecursionError as error:
        raise ModelError(f"the chat template is nested too deeply; {OTHERWISE}") from error


def _explain(error: Exception) -> str:
    """One line for the client; nothing of the interpreter in it."""
    if isinstance(error, TemplateRaisedError):
        return f"the chat template refuses these messages: {str(error)[:_MAX_MESSAGE]}"
    if isinstance(error, RenderLimitError):
        return f"the chat template does not end within its limits ({error})"
    if isinstance(error, SecurityError):
        return "the chat template reaches for something outside the sandbox"
    if isinstance(error, UndefinedError) and _TEMPLATE_WORDS.fullmatch(error.message or ""):
        return f"the chat template misses something in these messages: {error.message}"
    if isinstance(error, RecursionError | OverflowError | MemoryError):
        return "the chat template does not end within its limits (too deep or too large)"
    return "the chat template cannot render these messages"
