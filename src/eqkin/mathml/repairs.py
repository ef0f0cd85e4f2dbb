r"""Mending formulas that KaTeX refuses but a reader understands: each repair answers one kind of message."""

from __future__ import annotations

import re
from collections.abc import Callable

from eqkin.mathml.converter import Failure

_SCRIPTED_COMMAND = re.compile(r"([_^])\s*(\\[A-Za-z]+(?:\s*+\{(?:[^{}]++|\{[^{}]*+\})*+\})*)")
_DOLLAR = re.compile(r"(?<!\\)\$|\\[()]")
_TEXT = re.compile(r"\\(?:text[a-z]*|mbox|hbox|operatorname\*?|mathrm|mathtt|mathit|mathsf|textnormal)\s*\{[^{}]*\}")
_LEFT_RIGHT = re.compile(r"\\(?:left|right|middle)(?![A-Za-z])\s*\.?")
_UNDERSCORE = re.compile(r"(?<!\\)_")
_TRAILING_BACKSLASH = re.compile(r"\\+\s*$")
_SCRIPTED_LIMITS = re.compile(r"([_^])\s*\\limits(?![A-Za-z])")
_BARE_RADICAND = re.compile(r"(\\sqrt\s*+\[[^\[\]]*+\])\s*+(\\[A-Za-z]+(?:\s*+\{(?:[^{}]++|\{[^{}]*+\})*+\})+)")
_ROW_SPACE = re.compile(r"\\\\\s*\[[^\]]*\]")


def _wrap_in_aligned(text: str, failure: Failure) -> str:
    return rf"\begin{{aligned}}{text}\end{{aligned}}"


def _brace_scripts(text: str, failure: Failure) -> str:
    return _SCRIPTED_COMMAND.sub(r"\1{\2}", text)


def _move_limits_first(text: str, failure: Failure) -> str:
    return _SCRIPTED_LIMITS.sub(r"\\limits\1", text)


def _brace_radicand(text: str, failure: Failure) -> str:
    return _BARE_RADICAND.sub(r"\1{\2}", text)


def _drop_dollars(text: str, failure: Failure) -> str:
    return _DOLLAR.sub(" ", text)


def _escape_underscores(text: str, failure: Failure) -> str:
    return _TEXT.sub(lambda m: _UNDERSCORE.sub(r"\\_", m[0]), text)


def _drop_left_right(text: str, failure: Failure) -> str:
    return _LEFT_RIGHT.sub("", text)


def _open_group_at(text: str, failure: Failure) -> str:
    at = failure.position
    return text[:at] + "{}" + text[at:] if 0 <= at <= len(text) else text


def _drop_at(text: str, failure: Failure) -> str:
    at = failure.position
    return text[:at] + text[at + 1 :] if 0 <= at < len(text) else text


def _close_group(text: str, failure: Failure) -> str:
    return text + "}"


def _drop_row_space(text: str, failure: Failure) -> str:
    return _ROW_SPACE.sub(r"\\\\ ", text)


def _drop_trailing_backslash(text: str, failure: Failure) -> str:
    return _TRAILING_BACKSLASH.sub("", text)


_REPAIRS: tuple[tuple[re.Pattern[str], tuple[Callable[[str, Failure], str], ...]], ...] = (
    (re.compile(r"Expected 'EOF', got '&'"), (_wrap_in_aligned,)),
    (
        re.compile(r"Got function|Expected group (?:after|as)"),
        (_move_limits_first, _escape_underscores, _brace_scripts, _open_group_at),
    ),
    (re.compile(r"Can't use function '(?:\$|\\[()])'"), (_drop_dollars,)),
    (re.compile(r"Double (?:sub|super)script"), (_open_group_at,)),
    (re.compile(r"got '_'|Expected 'EOF', got '\^'"), (_escape_underscores, _open_group_at)),
    (re.compile(r"'\\right'|Expected & or|'\\middle'|\\middle without|delimiter"), (_drop_left_right,)),
    (re.compile(r"got 'EOF'|Unexpected end of input"), (_brace_radicand, _close_group)),
    (re.compile(r"Expected 'EOF', got '\}'|Extra \}"), (_drop_at,)),
    (re.compile(r"Invalid (?:size|unit)"), (_drop_row_space,)),
    (re.compile(r"Unexpected character"), (_drop_trailing_backslash, _drop_at)),
)


def repair_formula(text: str, failure: Failure) -> str:
    """The formula with the first repair applied that fits the failure and changes something, or "" if there is none."""
    if failure.command:
        return ""
    for pattern, repairs in _REPAIRS:
        if pattern.search(failure.message):
            for repair in repairs:
                mended = repair(text, failure)
                if mended != text and mended.strip():
                    return mended
    return ""
