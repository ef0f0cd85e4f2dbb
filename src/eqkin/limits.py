"""Limits of what one input may cost.

Work that nobody waits for any more stops: whoever runs it in a `CancelScope` can cancel that, and long loops and SQL
statements call `check_cancelled`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from eqkin.errors import LimitReached

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """Limits of what one input may cost."""

    # sources
    paper_bytes: int = 200_000_000  # unpacked text files of one paper
    paper_members: int = 5_000  # members of one paper's archive
    file_bytes: int = 100_000_000  # one text file
    document_bytes: int = 30_000_000  # one Markdown, reStructuredText or HTML file, or notebook
    python_bytes: int = 2_000_000  # one Python file; its syntax tree takes hundreds of times more
    line_bytes: int = 50_000_000  # one line of a jsonl file
    include_depth: int = 30  # nested \input
    includes: int = 10_000  # files included in one paper, repeats counted
    archive_bytes: int = 1_000_000_000  # everything one paper's archive unpacks to, figures included
    packed_bytes: int = 200_000_000  # one compressed member of a bulk archive
    member_header_bytes: int = 1_000_000  # long names and other headers of one archive member
    download_bytes: int = 300_000_000  # one HTTP response

    # formulas
    latex_chars: int = 20_000  # one display equation
    latex_depth: int = 200  # nested braces of one equation
    equations_per_paper: int = 50_000
    macro_expansions: int = 5_000  # KaTeX's maxExpand
    macro_tokens: int = 40_000  # that the macros of one formula expand to
    macros_per_paper: int = 5_000
    macro_tables: int = 200  # how often macros change their meaning within one paper
    macro_chars: int = 10_000  # body of one macro definition
    rule_size_em: float = 50.0  # KaTeX's maxSize
    batch_formulas: int = 128  # formulas in one call of the converter
    document_chars: int = 10_000_000  # formulas of one paper from which the arguments of undefined commands are guessed
    document_seconds: float = 15.0  # reading the macros of one paper
    batch_seconds: float = 2.0  # one call of the converter; formulas not done by then come in the next
    formula_seconds: float = 0.8
    paper_seconds: float = 300.0  # all formulas of one paper; those not done by then fail
    converter_bytes: int = 400_000_000  # heap of the embedded JavaScript engine

    # trees
    tree_nodes: int = 4_000
    tree_depth: int = 150
    mathml_chars: int = 1_000_000  # MathML given as input
    leaf_chars: int = 500  # text of one leaf
    parse_seconds: float = 30.0  # one batch of operator trees; on expiry they are parsed one by one

    # searching
    results: int = 1_000  # hits of one search
    query_text_chars: int = 1_000  # the words of a query
    draft_equations: int = 2_000  # of a paper or draft whose related papers are searched

    # web
    web_query_chars: int = 20_000  # a formula or text in a request
    web_list: int = 50  # values of one repeated parameter: fields, authors, papers
    web_hits: int = 200  # of one search
    web_papers: int = 100  # related papers of one request
    web_body_bytes: int = 200_000  # of a request
    web_upload_bytes: int = 5_000_000  # of a draft
    web_formulas: int = 200  # embedded in one request
    web_header_bytes: int = 131_072  # address and headers of a request
    web_workers: int = 2  # searches processed at the same time
    web_waiting: int = 128  # searches in the queue, about as many as can be answered in time; others are asked to retry
    web_slow_workers: int = 1  # requests processed at the same time that take long: drafts, whole papers, exports
    web_slow_waiting: int = 16  # of these in the queue
    web_seconds: float = 30.0  # until a request is abandoned, its time in the queue included
    web_retry_seconds: int = 1  # after which a rejected request may be retried
    web_judgements: int = 100_000  # of one library
    judgement_chars: int = 50_000  # of one judgement: query, equation, keywords
    judgement_keywords: int = 50
    judgements_bytes: int = 25_000_000  # of all judgements


LIMITS = Limits()


class CancelScope:
    """Work that another thread can cancel."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        """Make the work stop at its next check."""
        self.cancelled = True

    def run(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a function; raises `LimitReached` if it is cancelled."""
        before = _SCOPE.set(self)
        try:
            check_cancelled()
            return function(*arguments, **named)
        finally:
            _SCOPE.reset(before)


_SCOPE: ContextVar[CancelScope | None] = ContextVar("cancel_scope", default=None)


def check_cancelled() -> None:
    """Raise `LimitReached` if the current work was cancelled."""
    scope = _SCOPE.get()
    if scope is not None and scope.cancelled:
        raise LimitReached("given up: the time is over, or nobody waits for the answer any more")
