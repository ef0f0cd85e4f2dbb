"""The language of a text, by its script and its most frequent words."""

from __future__ import annotations

import re
from collections import Counter

_MIN_WORDS = 5  # frequent words of one language that must occur
_MIN_LETTERS = 10  # of a script
_SAMPLE_CHARS = 6_000  # of each of three places
_NOT_PROSE = re.compile(r"\$[^$]{0,2000}\$|\\\(.{0,2000}?\\\)|\\[A-Za-z]+\*?|[{}\[\]&~_^0-9]", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]+")
_SCRIPTS = (
    ("ko", re.compile("[\uac00-\ud7af]")), ("ja", re.compile("[\u3040-\u30ff]")), ("zh", re.compile("[\u4e00-\u9fff]")),
    ("uk", re.compile("[іїєґ]", re.IGNORECASE)), ("ru", re.compile("[\u0400-\u04ff]")),
    ("ar", re.compile("[\u0600-\u06ff]")), ("he", re.compile("[\u0590-\u05ff]")), ("hi", re.compile("[\u0900-\u097f]")),
    ("th", re.compile("[\u0e00-\u0e7f]")), ("el", re.compile("[\u0370-\u03ff]{3,}")),
)  # fmt: skip
_FREQUENT_WORDS = {
    word: [language for language, words in listed.items() if word in words]
    for listed in [
        {
            "en": set("the of and to is that we for in with this be are by it as which from on have can then".split()),
            "de": set("der die das und ist von mit für den eine ein dem des nicht sich auf sind wir dass wird".split()),
            "fr": set("le la les des et est une un dans pour que qui sur par avec nous du au sont pas on ce".split()),
            "es": set("el la los las de que y en un una es por con para del se como son no lo al si".split()),
            "it": set("il la di che e un una per è con del della si in sono non nel dei le gli alla da".split()),
            "pt": set("o a os as de que e em um uma é por com para do da se não na no são dos como".split()),
            "nl": set("de het een van en is dat voor met op zijn niet aan wordt te deze door we dan".split()),
            "pl": set("w i na że się jest nie z do to dla oraz jako przez są od jeśli który można".split()),
            "cs": set("a je na se že v pro jsou z to do nebo jako který pokud který má jsme podle".split()),
            "sv": set("och att det som en är av för med på den till ett inte vi har om kan".split()),
            "tr": set("ve bir bu için ile olan olarak da de her ise bir gibi daha çok veya".split()),
            "ro": set("și de la în este un o care pentru cu nu că se din sunt pe mai".split()),
            "vi": set("là của và các một cho có trong được với không khi ta này những".split()),
            "hu": set("a az és hogy egy nem is van meg ha akkor vagy mint ezt".split()),
        }
    ]
    for words in listed.values()
    for word in words
    if len(word) > 1  # one letter may be a symbol
}


def detect_language(text: str) -> str:
    """Return the code of a text's language, "" if it cannot be told. Commands and math are left out."""
    starts = (len(text) * part // 8 for part in ((0,) if len(text) < _SAMPLE_CHARS else (1, 3, 5)))
    prose = _NOT_PROSE.sub(" ", " ".join(text[start : start + _SAMPLE_CHARS] for start in starts))
    words = _WORD.findall(prose)
    letters = sum(map(len, words))
    for language, script in _SCRIPTS:
        found = sum(map(len, script.findall(prose)))
        share = 0.02 if language in ("ja", "uk") else 0.15  # kana among kanji, some letters of Ukrainian
        if found >= min(_MIN_LETTERS, letters) and found > share * letters:
            return language
    counts: Counter[str] = Counter()
    for word in words:
        counts.update(_FREQUENT_WORDS.get(word.lower(), ()))
    best = counts.most_common(2)
    if not best or best[0][1] < _MIN_WORDS or (len(best) > 1 and best[0][1] < 1.2 * best[1][1]):
        return ""
    return best[0][0]


def normalise_language(code: str) -> str:
    """Return a declared language as a short code (`en-US` -> `en`), "" for none."""
    code = code.strip().lower().replace("_", "-").split("-")[0]
    return code if re.fullmatch("[a-z]{2,3}", code) and code != "und" else ""
