r"""Find names of equations in the text around them.

    theorem     \begin{theorem}[Bayes' theorem] ... its first equation
    called      "... which is known as the Nernst equation", "Jensen's inequality states that ..."
    before      "... and obtain the heat equation" just before it
    emphasised  "The \emph{free energy} is defined as ..."
    heading     the first equation of a section "Fick's second law"

A wrong name is worse than none: a phrase must end in a noun that names laws, or its author must say that it is a name,
and it must say more than "the following equation".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from eqkin.atlas import load_names
from eqkin.latex.prose import EQUATION_MARK, to_plain_text

_MAX_WORDS = 6
_MAX_CHARACTERS = 60
_MAX_THEOREM_EQUATIONS = 2
# The words that name an equation are not further from it.
_MAX_DISTANCE = 60
# Hints at a name are searched for within so many characters.
_MAX_AFTER = 300
# So much LaTeX is read on each side of an equation.
_REACH = 700
_NOUNS = (
    "theorem|law|rule|formula|formulae|formulas|equations?|identity|identities|inequality|lemma|principle|relations?"
    "|approximation|criterion|distribution|transform|transformation|expansion|decomposition|hamiltonian|lagrangian"
    "|potential|kernel|estimator|bound|divergence|entropy|metric|series|polynomials?|integral|coefficient|conjecture"
    "|operator|function|functional|matrix|tensor|ratio|model|algorithm|statistic|theorems|laws|postulate|ansatz"
)
_HEAD = re.compile(rf"(?:{_NOUNS})$", re.IGNORECASE)
_LAW = re.compile(
    r"(?:theorem|law|rule|formulae?|formulas|equations?|identity|inequality|lemma|principle|relations?|approximation"
    r"|criterion|distribution|transform|expansion|decomposition|conjecture)$",
    re.IGNORECASE,
)
_WORD = r"[^\W\d_]+(?:['’][^\W\d_]*)?(?:[-–][^\W\d_]+(?:['’]s)?)*"
_PHRASE = rf"{_WORD}(?: (?:of|for|and|in) (?:the )?{_WORD}| {_WORD}){{0,5}}"
_PLAIN_PHRASE = rf"{_WORD}(?: {_WORD}){{0,4}}"
_CALLED = re.compile(
    r"(?:known as|called|referred to as|termed|named|are the (?:well[- ]known|famous|celebrated|so-called)"
    r"|is the (?:well[- ]known|famous|celebrated|so-called))"
    rf"(?: the| as the)? (?!an? )(?:so-called |famous |well[- ]known |celebrated )?[\"“'‘]?(?P<name>{_PHRASE})[\"”'’]?"
    r"(?P<end>[.,:;)]|$| which| where| and(?: is)? (?:is|are|can|will|has)| for | by | \$)"
)
_STATES = re.compile(
    rf"(?:^|[.,;:] |\n|[Tt]he |[Ff]amous )(?P<name>{_PHRASE})(?: \$[^$]{{1,40}}\$)?,? "
    r"(?:states?(?: that)?|says?(?: that)?|asserts?(?: that)?|reads?(?: as)?(?: follows)?|is given by|takes the form"
    r"|is defined (?:as|by)|are given by|tells us(?: that)?|is(?: then| simply| just)?|becomes|can be written(?: as)?"
    r"|is written(?: as)?|is expressed as|has the form)[:,]?\s*$"
)
_BEFORE = re.compile(rf"(?:the|an?) (?P<name>{_PLAIN_PHRASE})(?: \((?:[A-Z]{{2,6}})\))?[:,]?\s*$")
_POSSESSIVE_BEFORE = re.compile(rf"(?:^|[\s(])(?P<name>[A-Z]{_WORD}['’]s? (?:{_WORD} )?(?:{_NOUNS}))[:,]?\s*$")
# "by the chain rule" is not the chain rule itself
_APPLIES = re.compile(
    r"\b(?:by|using|via|from|with|appl(?:y|ies|ied|ying)|through|tak(?:e|es|ing)|due|thanks|invok(?:e|ing)|use|follows|of"
    r"|gives?|implies|similar|like|instead|unlike|in|to)\b[^.;:]{0,25}$",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"(?:equations?|law|formulae?|identity|inequality|relations?|rule|lemma|distribution)$", re.IGNORECASE
)
_HINT = re.compile(
    rf"known as|called|referred to|termed|named|so-called|famous|celebrated|well[- ]known|\\emph|\\text|\*\*|{_NOUNS}"
)
_POINTS_BACK = re.compile(r"[.,;]?\s*(?:this|which|it|these|that|equation)\b", re.IGNORECASE)
_AFTER_IS = re.compile(
    rf"^[.,;]?\s*(?:[Tt]his|[Ww]hich|[Ii]t|[Tt]hese|[Tt]hat) (?:is|are) (?:just |simply |exactly |precisely )?the "
    rf"(?P<name>{_PLAIN_PHRASE})(?P<end>[.,;:]|$| for | in | and )"
)
_EMPHASISED = re.compile(
    r"\\(?:emph|textbf|textit|defn|term|textsl|bf|em|it)\s*\{(?P<name>[^{}$\\]{4,60})\}|\*\*(?P<bold>[^*$]{4,60})\*\*"
)
_DEFINES = re.compile(r"\b(?:defined?|call(?:ed)?|known|is given by|is the|are the|denote|states?|says|reads?)\b|:\s*$")
_THEOREM = re.compile(r"\\(?P<what>begin|end)\s*\{(?P<kind>[A-Za-z]+)\*?\}(?:\s*\[(?P<title>[^\[\]]{3,120})\])?")
_THEOREM_KINDS = re.compile(
    r"(?:thm|theo|theorem|lem|lemma|prop|proposition|cor|corollary|coro|defn?|definition|law|principle|dfn|deff|teo|satz"
    r"|lemme|theoreme|conjecture|conj|formula|claim|fact|result|property|identity)[a-z]*",
    re.IGNORECASE,
)
_EMPTY_WORDS = frozenset(
    "long following above below last previous same resulting general first second third next original new old"
    " simple basic main other another this that these those our its their such corresponding usual standard"
    " desired required given obtained final equivalent equality explicit simplified similar modified exact"
    " approximate current present complete full entire whole only each every any some all both two three four"
    " one differential linear nonlinear matrix vector scalar integral algebraic partial ordinary stochastic"
    " closed analytic analytical recursive update loss objective cost target output input right left correct"
    " important fundamental key useful famous well-known celebrated so-called well known classic classical"
    " associated respective relevant actual true false optimal single common more most very quite relation"
    " relations equation equations formula formulas function system governing constraint constraints coupled"
    " master state initial boundary it we they he she there here then thus hence so let if when where while"
    " also which what whose of for in on at by with from to into as is are be been the a an and or but not no"
    " use using used get obtain have has had can may might will would should do does did".split()
)
_BAD_WORDS = frozenset(
    "recall part so it we they which that this these those there here then thus hence where when while if let"
    " also is are was were be been being now since because whose satisfy satisfies satisfied obeys obey reads"
    " form forms both and/or via follows yields become has have had can may will would should do does did not"
    " get gives give given using used use obtain following above below previous last next our their his her my"
    " your see figure fig table section eq eqs chapter appendix e.g i.e etc et al ref respectively".split()
)
_LEADING_WORDS = frozenset("the a an so-called famous celebrated well-known usual standard".split())
_TRAILING_WORDS = frozenset("of for in and the to by with on a an as".split())
_OPENING = re.compile(
    r"^(?:of |in |for )?(?:the|an?|our|so-called|famous|celebrated|well[- ]known|general|classical) (?=.)",
    re.IGNORECASE,
)
_NO_LETTER = re.compile(r"[\d=<>{}()\[\]/|_:;,]")
_CITATION = re.compile(r"\b(?:19|20)\d\d\b|\[\d|\bet al\b|\\cite|\bsee\b|\bcf\b", re.IGNORECASE)


def normalise_name(name: str) -> str:
    """Return what names that differ in case, accents, possessives, articles or plurals have in common."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name.casefold()) if not unicodedata.combining(c))
    plain = re.sub(r"['’]s?\b|['’]", "", plain)
    words = [word for word in re.findall(r"[^\W_]+", plain) if word not in ("the", "a", "an")]
    return " ".join(
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in words
    )


def find_names(heading: str, latex: str) -> Iterator[tuple[int, str, str]]:
    """Yield names of a section's equations: number of the equation's mark, name, and where it was found.

    Args:
        heading: Title of the section.
        latex: Its prose, with a mark in the place of each equation.
    """
    title = clean_name(to_plain_text(heading))
    titles = _find_theorem_titles(latex)
    count = latex.count(EQUATION_MARK)
    is_single = count == 1
    at = -1
    for mark in range(count):
        last = at
        at = latex.index(EQUATION_MARK, at + 1)
        following = latex.find(EQUATION_MARK, at + 1)
        before = latex[max(last + 1, at - _REACH) : at]
        after = latex[at + 1 : min(following if following >= 0 else len(latex), at + 1 + _REACH)]
        found = dict.fromkeys(_find_in_context(before, after))
        if mark in titles:
            found = {(titles[mark], "theorem"): None} | found
        if is_single and not found and _is_law(title) and not re.search(r"(?:theorem|lemma|conjecture)$", title, re.I):
            found[title, "heading"] = None
        keys = set()
        for name, source in found:
            # Names that differ in case or in an article are one.
            if normalise_name(name) not in keys:
                keys.add(normalise_name(name))
                yield mark, name, source


def _find_theorem_titles(latex: str) -> dict[int, str]:
    """Return the titles of theorems, by the mark of their first equation."""
    titles: dict[int, str] = {}
    for match in _THEOREM.finditer(latex):
        if match["what"] != "begin" or not match["title"] or not _THEOREM_KINDS.fullmatch(match["kind"]):
            continue
        end = latex.find(f"\\end{{{match['kind']}", match.end())
        if end < 0 or not 1 <= latex.count(EQUATION_MARK, match.end(), end) <= _MAX_THEOREM_EQUATIONS:
            # Of several equations, none is the theorem.
            continue
        # The last equation is what the theorem says.
        mark = latex.rfind(EQUATION_MARK, match.end(), end)
        name = clean_name(to_plain_text(match["title"]))
        if " " in name and not _CITATION.search(match["title"]):
            titles[latex.count(EQUATION_MARK, 0, mark)] = name
    return titles


def _find_in_context(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Yield the names that the text just before and after an equation gives it, and where each was found."""
    after = after[:_MAX_AFTER]
    # Most equations have no name: a fast search rules them out.
    if not _HINT.search(before[-_MAX_AFTER:]) and not _HINT.search(after):
        return
    paragraph = re.split(r"\n\s*\n", before.rstrip())[-1]
    sentence = re.split(r"(?<=[^A-Z\d][^A-Z])[.!?](?=\s+[A-Z\\])", paragraph)[-1]
    plain = " ".join(to_plain_text(sentence).split())
    opening = re.split(r"(?<=[^A-Z])[.](?: |$)|\n\n", " ".join(to_plain_text(after).split()))[0][:200] + "."
    for name in _find_called(plain, opening):
        yield name, "called"
    for found in (_STATES.search(plain), _AFTER_IS.match(opening)):
        if found and (name := _clean_law(found["name"])):
            yield name, "called"
    if name := _find_before(plain):
        yield name, "before"
    if _DEFINES.search(plain) and (name := _find_emphasised(sentence)):
        yield name, "emphasised"


def _find_called(plain: str, opening: str) -> Iterator[str]:
    """Yield names after "known as": at the end of the sentence before, or of one after it that points back."""
    for called in _CALLED.finditer(plain):
        is_last = not plain[called.end("name") :].strip(" .,:;)\"”'")
        if is_last and (name := clean_name(called["name"])):
            yield name
    if _POINTS_BACK.match(opening):
        said = _CALLED.search(opening, 0, _MAX_DISTANCE + _MAX_CHARACTERS)
        if said and said.start() < _MAX_DISTANCE and (name := clean_name(said["name"])):
            yield name


def _find_before(plain: str) -> str:
    """Return the name just before an equation: "and obtain the heat equation", not "by the chain rule"."""
    for pattern in (_POSSESSIVE_BEFORE, _BEFORE):
        last = pattern.search(plain)
        if last and _STATED.search(last["name"]) and not _APPLIES.search(plain[: last.start("name")]):
            if name := _clean_law(last["name"]):
                return name
    return ""


def _find_emphasised(sentence: str) -> str:
    """Return the only emphasised term of a sentence that defines something, if it names a law."""
    found = [term for term in _EMPHASISED.finditer(sentence) if not _APPLIES.search(sentence[: term.start()])]
    if len(found) != 1:
        return ""
    name = clean_name((found[0]["name"] or found[0]["bold"]).rstrip(".:,; "))
    return name if " " in name and _HEAD.search(name) else ""


def _clean_law(text: str) -> str:
    """Return a phrase as the proper name of a law, or "" if it is none."""
    name = clean_name(text)
    return name if _is_law(name) and _is_proper(name) else ""


def clean_name(text: str) -> str:
    """Return a phrase as a name, or "" if it is none."""
    if "$" in text or "\\" in text or EQUATION_MARK in text:
        return ""
    text = re.sub(r"^\(([^()]*)\) |\s*\([^()]*\)?", lambda match: f"{match[1]} " if match[1] else "", text)
    text = re.sub(r"^(?:\d+(?:\.\d+)*\.?|[IVX]+\.)\s+", "", " ".join(text.split())).strip(' .,:;"“”()')
    text = _OPENING.sub("", text)
    words = text.split()
    while words and words[0].casefold() in _LEADING_WORDS:
        words = words[1:]
    while words and words[-1].casefold() in _TRAILING_WORDS:
        words = words[:-1]
    name = " ".join(words)
    if not 1 <= len(words) <= _MAX_WORDS or not 4 <= len(name) <= _MAX_CHARACTERS or _NO_LETTER.search(name):
        return ""
    if any(word.casefold().strip(".,") in _BAD_WORDS for word in words):
        return ""
    return name if any(len(word) > 2 and word.casefold() not in _EMPTY_WORDS for word in words) else ""


def _is_law(name: str) -> bool:
    """Return whether a name ends, or begins, with a noun that names laws, and says more than that."""
    words = name.split()
    if len(words) < 2:
        return False
    head = words[-1]
    if re.match(r"(?:law|theorem|principle|rule|equation|method) of ", name, re.IGNORECASE):
        return True
    special = [word for word in words[:-1] if word.casefold() not in _EMPTY_WORDS]
    if " of " in name or " for " in name or " in " in name:
        return False
    return bool(_LAW.fullmatch(head)) and bool(special)


def _is_proper(name: str) -> bool:
    """Return whether a name has the name of a person, or is that of a law of the atlas."""
    words = name.split()
    is_person = any(word[0].isupper() and not word.isupper() for word in words[1:-1]) or (
        words[0][0].isupper() and (words[0].endswith(("'s", "’s", "'", "’")) or len(words) < 4)
    )
    return (is_person and not words[-1].istitle()) or normalise_name(name) in _load_known_names()


@cache
def _load_known_names() -> frozenset[str]:
    return frozenset(normalise_name(name) for names in load_names().values() for name in names)
