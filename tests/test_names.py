"""Names stay in the field's language: functions start with a verb, a class name occurs once."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "src" / "eqkin", ROOT / "benchmarks", ROOT / "research")

# Base forms that a function may start with. A new verb is added here; a noun or a participle is not.
VERBS = frozenset(
    """
    abort accept acquire add adjust advance align allow analyse answer append apply are ask assemble assert assign
    attach attend augment average balance begin bind bootstrap borrow broadcast build bump cache call can cancel
    canonicalise canonicalize capture catch change check choose chunk clamp classify clean clear clip close cluster
    collapse collate collect combine commit compact compare compile complete compose compress compute concatenate
    configure connect consume contains convert copy correct count cover create cross cut deal decode decompress
    deduplicate define delete demote derive describe deserialize detect digest discard dispatch display divide do
    download draw drop dump echo embed emit empty encode end ensure enter enumerate escape estimate evaluate exclude
    execute exit expand explain export extend extract fail feed fetch fill filter find finetune finish fit flatten
    flip flush fold follow forbid forget format forward freeze fuse gather generate get give go group grow guard
    guess handle has hash help hide highlight hold ignore import include index infer init initialize inline insert
    inspect install intersect invert is iter join judge keep kill label lacks launch lay learn leave lift limit link
    list load locate lock log look looks lower make map mark mask match materialize may measure merge mix monitor
    move multiply must name needs negate normalise normalize note notify observe occurs offer open order overlap
    override pack pad paint parenthesize parse partition pass patch perform permute pick plan plot poll pool pop
    populate predict prepare print process project propagate prune publish pull push put query quote raise rank read
    rebuild receive reconnect record reduce refresh refuse register reject relate release reload remember remove
    rename render renew renumber reopen repair repeat replace reply report request require rerank reread resample
    reserve reset resize resolve respond restart restore restrict resume retrieve retry return reuse reverse revert
    rewrite rollback rotate round run sample save scale scan schedule score seal search seed segment select send
    serialise serialize serve set settle share shift shorten should show shuffle shut sign silence simplify sit skip
    sleep smooth solve sort split spread squeeze stack standardize start starts stem step stop store stream strip
    submit substitute subtract suggest sum summarise summarize supports swap sweep switch sync synchronize tabulate
    take tell terminate test thin tidy tile to tokenise tokenize touch trace track train transform translate
    transpose traverse trim truncate try tune turn unescape unify unlock unpack unquote unseal unwrap update upgrade
    upload use uses validate verify view visit wait walk want wants warm warn watch weigh weight widen will wrap
    write yield zip
    """.split()
)


def iter_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield functions and methods, except nested ones, dunders, properties, commands and routes."""
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    for node in (child for scope in scopes for child in scope.body):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        exempt = any(word in decorators for word in ("property", "setter", "command", "callback", "route"))
        if not exempt and not node.name.startswith("__"):
            yield node


def starts_with_verb(name: str) -> bool:
    """Return whether the first word of a function's name is a verb."""
    return name.lstrip("_").split("_")[0] in VERBS or name.startswith(("from_", "_from_"))


@cache
def parse_modules() -> dict[Path, ast.Module]:
    """Parse every module of the package, the benchmarks and the experiments."""
    paths = (path for package in PACKAGES for path in sorted(package.rglob("*.py")))
    return {path.relative_to(ROOT): ast.parse(path.read_text("utf-8")) for path in paths}


def test_functions_start_with_a_verb():
    names = [(path, node) for path, tree in parse_modules().items() for node in iter_functions(tree)]
    others = [f"{path}:{node.lineno} {node.name}" for path, node in names if not starts_with_verb(node.name)]
    share = 1 - len(others) / len(names)
    assert share >= 0.9, f"{share:.1%} of {len(names)} functions start with a verb; these do not:\n" + "\n".join(others)


def test_class_names_are_unique():
    places = defaultdict(list)
    for path, tree in parse_modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(str(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
