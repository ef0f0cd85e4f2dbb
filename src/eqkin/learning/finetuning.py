"""Finetuning: train a network to find the other side of an equality (paper, section 6.4).

The paper splits LaTeX with regular expressions; here trees are split at relation signs:

- A line is the content of the root, or of a row of the root's table. Wide spaces, words, arrows of implication, commas
  and semicolons outside of brackets split a line into statements; relation signs split a statement into sides.
- Two neighbouring sides are a pair if each has at least `MIN_SIDE_NODES` nodes, and the larger one at most
  `MAX_SIZE_RATIO` times as many as the smaller one.
- A statement gives at most one pair, the first: in a chain a = b = c all sides are right answers to each other.
- No side occurs twice: every side has one right answer, and no side of the training pairs occurs in a test.

All pairs of a work (a book, a repository) are in the same part of a split. All learning rates are tried, and the best
state on validation pairs is kept, which may be the initial one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import DESCRIPTION_FILE, Model
from eqkin.errors import BadInput, TrainingFailed
from eqkin.formulas import Forest
from eqkin.formulas.mathml import ROW_TAGS, Node, list_nodes, to_forest, to_mathml, to_node
from eqkin.learning.batches import DeviceForest
from eqkin.learning.config import LoggingConfig, OptimizerConfig, choose_device
from eqkin.learning.data import Corpus, choose_works
from eqkin.learning.losses import compute_info_nce_loss
from eqkin.learning.torch_network import build_network
from eqkin.learning.trainer import RunSettings, Trainer

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

# More than f(x), which has five nodes with the row around it.
MIN_SIDE_NODES = 6
MAX_SIZE_RATIO = 1.3
# Of the pairs that are not for testing.
VALIDATION_FRACTION = 0.1
PAIR_SPLIT_SEED = 0
DEPTHS = (1, 10, 100)

# What `--pairs` selects: the signs between two sides.
PAIR_SIGNS = {"equalities": "=", "inequalities": "<", "relations": "=<>"}
_RELATIONS = {
    **dict.fromkeys("= :=".split(), "="),
    **dict.fromkeys("< ≤ ⩽ ≦".split(), "<"),
    **dict.fromkeys("> ≥ ⩾ ≧".split(), ">"),
    # Other relations end a side, but their sides are no pair.
    **dict.fromkeys(
        "≠ ≡ ≢ ≈ ≃ ≅ ∼ ≍ ≐ ≜ ≔ ≕ ≝ ∝ ≪ ≫ ≲ ≳ ≺ ≻ ≼ ≽ ⪯ ⪰ ∈ ∉ ∋ ⊂ ⊃ ⊆ ⊇ ⊢ ⊨ → ← ↔ ↦ ↪ ⟶ ⟵ ⟷ ⟼ ⊥ ∥".split(), "other"
    ),
}
_SEPARATORS = frozenset(", ; ⇒ ⇐ ⇔ ⟹ ⟸ ⟺ ∀ ∃ ∴ ∵".split())
_JOINING_WORDS = frozenset("and as by for from if in on or otherwise so then when where with".split()) | {""}
_OPENING = frozenset("( [ { ⟨ ⌊ ⌈ ⟦".split())
_CLOSING = frozenset(") ] } ⟩ ⌋ ⌉ ⟧".split())
# Dropped at the ends of sides; a colon belongs to the sign after it.
_BLANKS = frozenset((".", ":", "", "\u2061"))
_WRAPPERS = frozenset(ROW_TAGS | {"mtd", "menclose"})
_SCRIPTS = frozenset({"mover", "munder", "munderover"})
_MAX_PAIRS = 1_000_000
# Vector lengths of so many equations determine the soft norm.
_NORM_SAMPLE = 10_000
# Smaller differences of cosines are ties.
_TIE_DECIMALS = 6
_QUERY_BATCH = 1_024
LEARNING_RATES = (3e-5, 1e-4, 3e-4, 1e-3)


@dataclass(frozen=True)
class FinetuningConfig:
    """Settings of finetuning."""

    # Pairs per step, at most all.
    batch: int = 1_024
    # Epochs at most.
    epochs: int = 20
    # To choose from; each falls to 0.
    rates: tuple[float, ...] = LEARNING_RATES


@dataclass(frozen=True)
class FinetuningChoice:
    """The best learning rate and number of epochs on the validation pairs."""

    # None: the initial state was best.
    learning_rate: float | None
    epochs: int
    # Mean reciprocal rank of the validation pairs.
    score: float


@dataclass(frozen=True, kw_only=True)
class FinetuningResult:
    """The finetuned model and its recall on test pairs, by cosine."""

    model: Path
    # Numbers of pairs.
    learned: int
    checked: int
    tested: int
    # Recall at 1, 10 and 100: "r1", "r10", "r100".
    before: dict[str, float]
    after: dict[str, float]
    choice: FinetuningChoice


def finetune_model(
    corpus: Corpus,
    out: Path,
    *,
    model: str | Path | None = None,
    pairs: str = "relations",
    held_out: float = 0.2,
    settings: FinetuningConfig | None = None,
    device: str = "auto",
    log: Callable[[str], None] = lambda message: None,
) -> FinetuningResult:
    """Finetune a model to find the other side of equalities, and write it to a folder that `Encoder.load` takes.

    Args:
        corpus: Source of the pairs.
        out: The folder to write to.
        model: The model to start from: a name or a folder, as `Encoder.load` takes it.
        pairs: "equalities", "inequalities", or "relations" for both and similar signs.
        held_out: Share of test pairs, split by work.
        settings: Batch size, epochs and learning rates.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        log: Receives progress, one line at a time.

    Raises:
        BadInput: The folder already holds a model, there is no model to start from, or there are too few pairs.
        StorageFailed: The disk refused.
    """
    if (out / DESCRIPTION_FILE).exists():
        raise BadInput(f"{out} already holds a model: choose another folder")
    if not 0 < held_out < 1:
        raise BadInput(f"the held-out share must be between 0 and 1, such as 0.2, got {held_out}")
    first, settings = Encoder.load(model).model, settings or FinetuningConfig()
    split = split_pairs(corpus, pairs, held_out)
    learned, checked, tested = (len(part) for part in (split.train, split.validation, split.test))
    log(f"{learned:,} training pairs, {checked:,} validation pairs, {tested:,} test pairs")

    encoder = SideEncoder(split.forest, first, choose_device(device))
    before = _compute_recall(encoder, split.test)
    choice = finetune(encoder, split.train, split.validation, settings, log)
    result = FinetuningResult(
        model=out,
        learned=learned,
        checked=checked,
        tested=tested,
        before=before,
        after=_compute_recall(encoder, split.test),
        choice=choice,
    )

    state = encoder.network.state_dict()
    weights = {name: np.asarray(tensor.float().cpu().numpy()) for name, tensor in state.items()}
    facts = asdict(result) | {"model": first.digest, "corpus": corpus.digest, "pairs": pairs}
    recipe, training = first.recipe | {"finetuned": asdict(settings)}, first.training | {"finetuned": facts}

    def make_model(mean: float, deviation: float) -> Model:
        norm = {"soft_norm.mean": np.float32(mean), "soft_norm.deviation": np.float32(deviation)}
        arrays = weights | {name: np.asarray(number) for name, number in norm.items()}
        return Model(first.architecture, first.vocabulary, arrays, recipe, training)

    # Finetuning does not control the lengths of vectors: the soft norm is fitted to those of some equations.
    sample = corpus.forest.select(np.arange(0, len(corpus), max(1, len(corpus) // _NORM_SAMPLE)))
    lengths = np.linalg.norm(Encoder(make_model(1, 0)).embed(sample), axis=1)
    make_model(float(lengths.mean()), float(lengths.std())).save(out)
    return result


class SideEncoder(nn.Module):
    """A model's network on a device, in bfloat16 while training on a GPU, that encodes the trees of a forest."""

    def __init__(self, forest: Forest, model: Model, device: torch.device) -> None:
        super().__init__()
        self.network = build_network(model.architecture, model.weights).to(device)
        self._forest = DeviceForest(forest, model.vocabulary, device)
        self._sizes = forest.sizes

    def train(self, mode: bool = True) -> SideEncoder:
        """Switch training on or off; running statistics are kept: a few steps are too few for new ones to converge."""
        super().train(mode)
        self.network.eval()
        return self

    def forward(self, trees: Integers) -> Tensor:
        """Return the vectors of some trees, (trees, dimensions)."""
        forest = self._forest
        nodes = torch.arange(int(self._sizes[trees].sum()), device=forest.device)
        batch = forest.collate(torch.from_numpy(trees).to(forest.device), nodes)
        fast = self.training and forest.device.type == "cuda"
        features = forest.build_features(batch, torch.bfloat16 if fast else torch.float32)
        vectors: Tensor = self.network(features, batch.trees)
        return vectors

    def embed(self, trees: Integers) -> Floats:
        """Return the vectors of some trees as in a search."""
        numbers = torch.from_numpy(trees).to(self._forest.device)
        vectors: Floats = self._forest.embed(self.network, numbers).cpu().numpy()
        return vectors


def finetune(
    encoder: SideEncoder,
    pairs: Integers,
    validation: Integers,
    config: FinetuningConfig,
    log: Callable[[str], None] = lambda message: None,
) -> FinetuningChoice:
    """Finetune an encoder with each learning rate, leave it in its best state, and return the choice.

    Args:
        encoder: Changed in place.
        pairs: (n, 2) trees of the left and right sides to train on.
        validation: (m, 2) those to choose on.
        config: Settings.
        log: Called with a message about each learning rate.

    Raises:
        BadInput: There are fewer than two training pairs, or no validation pairs.
        TrainingFailed: The loss became NaN or infinite with every learning rate.
    """
    if len(pairs) < 2 or not len(validation):
        raise BadInput(f"{len(pairs)} training and {len(validation)} validation pairs are too few for finetuning")
    batch = min(config.batch, len(pairs))
    # Pairs that do not fill a batch are left out until the next epoch.
    epoch_steps = len(pairs) // batch
    initial = state = _copy_state(encoder)
    best = FinetuningChoice(None, 0, compute_mrr(encoder.embed(validation.T.ravel())))
    failures: list[TrainingFailed] = []

    def compute_loss(step: int) -> Tensor:
        epoch, position = divmod(step, epoch_steps)
        order = np.random.default_rng([0, epoch]).permutation(len(pairs))
        chosen = pairs[order[position * batch : (position + 1) * batch]]
        left, right = encoder(chosen.T.ravel()).chunk(2)
        return compute_info_nce_loss(left, right)

    for rate in config.rates:

        def keep_best(trainer: Trainer, rate: float = rate) -> None:
            nonlocal best, state
            score = compute_mrr(encoder.embed(validation.T.ravel()))
            if score > best.score:
                best, state = FinetuningChoice(rate, trainer.step // epoch_steps, score), _copy_state(encoder)

        encoder.load_state_dict(initial)
        steps = epoch_steps * config.epochs
        settings = RunSettings(logging=LoggingConfig(log_steps=steps, score_steps=epoch_steps), evaluate=keep_best)
        trainer = Trainer(encoder, compute_loss, OptimizerConfig(steps, rate), settings=settings)
        try:
            trainer.train()
            keep_best(trainer)
            log(f"learning rate {rate:g}: the best so far is {best.learning_rate}, score {best.score:.3f}")
        except TrainingFailed as error:
            failures.append(error)
            log(f"learning rate {rate:g}: {error}")
    if len(failures) == len(config.rates):
        raise failures[-1]
    encoder.load_state_dict(state)
    return best


def _copy_state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def _compute_recall(encoder: SideEncoder, pairs: Integers) -> dict[str, float]:
    ranks = compute_partner_ranks(encoder.embed(pairs.T.ravel()))
    return {f"r{k}": float(np.mean(ranks < k)) for k in DEPTHS}


@dataclass(frozen=True, eq=False, kw_only=True)
class PairSplit:
    """Training, validation and test pairs: the trees of their left and right sides, (n, 2)."""

    forest: Forest
    train: Integers
    validation: Integers
    test: Integers
    # Number of the work that each test pair comes from.
    test_works: Integers


def split_pairs(corpus: Corpus, name: str, test: float = 0.5, most: int = _MAX_PAIRS) -> PairSplit:
    """Split the pairs of a corpus with the signs of one of `PAIR_SIGNS`; `test` is the share of test pairs.

    Raises:
        BadInput: The set is unknown, or its pairs come from fewer than three works and cannot be split.
    """
    if name not in PAIR_SIGNS:
        raise BadInput(f"unknown set of pairs {name!r}; choose from {', '.join(PAIR_SIGNS)}")
    pairs = find_pairs(corpus.forest, PAIR_SIGNS[name])
    kept = np.linspace(0, len(pairs), min(most, len(pairs)), endpoint=False).astype(np.int64)
    works = np.array([corpus.works[paper] for paper in corpus.paper[pairs.origin[kept]].tolist()])
    names, work = np.unique(works, return_inverse=True)
    if len(names) < 3:
        raise BadInput(
            f"{name}: {len(pairs):,} pairs from {len(names)} works are too few to split into training, "
            "validation and test pairs; add papers of more works"
        )
    is_test = _choose_pairs(works, test)
    is_checked = np.zeros(len(kept), bool)
    is_checked[~is_test] = _choose_pairs(works[~is_test], VALIDATION_FRACTION)
    sides = np.stack([kept, len(pairs) + kept], axis=1)
    return PairSplit(
        forest=pairs.forest,
        train=sides[~is_test & ~is_checked],
        validation=sides[is_checked],
        test=sides[is_test],
        test_works=work[is_test],
    )


def _choose_pairs(works: npt.NDArray[np.str_], share: float) -> npt.NDArray[np.bool_]:
    """Choose about a share of the pairs, all of a work or none."""
    chosen = choose_works(Counter(works.tolist()), share * len(works), PAIR_SPLIT_SEED)
    return np.isin(works, list(chosen))


@dataclass(frozen=True, eq=False)
class EqualityPairs:
    """Pairs of sides: pair i has the trees i and len + i of the forest."""

    forest: Forest
    # Number of the tree that contains each pair, and the sign between its sides.
    origin: Integers
    signs: list[str]

    def __len__(self) -> int:
        return len(self.signs)


def find_pairs(forest: Forest, signs: Collection[str]) -> EqualityPairs:
    """Find the pairs with some signs ("=", "<" or ">"): at most one per statement, none with a side seen before."""
    # Most formulas are no equalities: only trees with one of the signs are read.
    has_sign = np.array([_RELATIONS.get(text, "none") in signs for text in forest.texts], bool)
    trees = np.unique(np.searchsorted(forest.offsets, np.flatnonzero(has_sign[forest.text]), side="right") - 1)
    seen: set[str] = set()
    found: list[tuple[int, str, Node, Node]] = []
    for tree in trees.tolist():
        for statement in _read_statements(to_node(forest, tree)):
            for (_, left), (sign, right) in pairwise(statement):
                if sign not in signs or not _is_fitting(left, right):
                    continue
                markups = [to_mathml(left), to_mathml(right)]
                if markups[0] != markups[1] and seen.isdisjoint(markups):
                    seen.update(markups)
                    found.append((tree, sign, left, right))
                # Only the first fitting pair of a statement counts, even if a side was seen before.
                break
    sides = [pair[2] for pair in found] + [pair[3] for pair in found]
    return EqualityPairs(
        Forest.concatenate([to_forest(side) for side in sides]),
        np.array([pair[0] for pair in found], np.int64),
        [pair[1] for pair in found],
    )


def _is_fitting(left: Node, right: Node) -> bool:
    small, large = sorted((len(list_nodes(left)), len(list_nodes(right))))
    return small >= MIN_SIDE_NODES and large <= MAX_SIZE_RATIO * small


def _read_statements(root: Node) -> Iterator[list[tuple[str, Node]]]:
    """Yield the statements of a tree: its sides, each with the sign before it. Incomplete sides are empty rows."""
    content = _unwrap(root)
    rows = [content]
    if len(content) == 1 and content[0].tag == "mtable":
        rows = [[node for cell in row.children for node in _unwrap(cell)] for row in content[0].children]
    for number, row in enumerate(rows):
        statements = _split_row(row)
        # A row that begins with an operator continues the row above.
        if number and row and row[0].tag == "mo" and row[0].text not in _OPENING:
            statements[0][0] = ("", Node("mrow"))
        yield from statements


def _unwrap(node: Node) -> list[Node]:
    """Return the nodes in a row: a node, or its children if it only wraps them; rows without content are dropped."""
    nodes = [node]
    while len(nodes) == 1 and nodes[0].tag in _WRAPPERS:
        nodes = [child for child in nodes[0].children if child.children or child.tag not in _WRAPPERS]
    return nodes


def _split_row(row: Sequence[Node]) -> list[list[tuple[str, Node]]]:
    statements: list[list[tuple[str, Node]]] = [[]]
    sign = ""
    nodes: list[Node] = []
    depth = 0
    for node in [*row, Node("mo", text=";")]:
        if node.tag == "mo":
            depth += (node.text in _OPENING) - (node.text in _CLOSING)
        if depth < 0:
            break
        next_sign = _find_sign(node)
        is_end = _is_separator(node)
        if depth or not (next_sign or is_end):
            nodes.append(node)
            continue
        statements[-1].append((sign, _join_side(nodes)))
        sign = next_sign
        nodes = []
        if is_end:
            statements.append([])
    # Brackets that do not match: nothing says where a side ends.
    return statements if depth == 0 else [[("", Node("mrow"))]]


def _find_sign(node: Node) -> str:
    """Return the sign that a node is, also with something written above or below it; empty if it is none."""
    while (node.tag in _SCRIPTS and node.children) or (node.tag in _WRAPPERS and len(node.children) == 1):
        node = node.children[0]
    return _RELATIONS.get(node.text, "") if node.tag in ("mo", "mi") else ""


def _is_separator(node: Node) -> bool:
    if node.tag == "mspace":
        width = node.attributes.get("width", "")
        return width.endswith("em") and width[:-2].replace(".", "", 1).isdecimal() and float(width[:-2]) >= 1
    if node.tag == "mtext":
        words = node.text.replace("\u00a0", " ")
        # Several words, or one that joins statements; other single words are names.
        return " " in words.strip() or words.strip(" ,;:.").lower() in _JOINING_WORDS
    return node.text in _SEPARATORS and node.tag in ("mo", "mi")


def _join_side(nodes: list[Node]) -> Node:
    """Return the tree of a side without blanks at its ends; an empty row if an operand is missing at its end."""
    while nodes and not nodes[-1].children and nodes[-1].text.strip() in _BLANKS:
        nodes = nodes[:-1]
    while nodes and not nodes[0].children and nodes[0].text.strip() in _BLANKS:
        nodes = nodes[1:]
    if nodes and nodes[-1].tag == "mo" and nodes[-1].text not in _CLOSING | {"!", "′"}:
        nodes = []
    return nodes[0] if len(nodes) == 1 else Node("mrow", children=nodes)


def export_pairs(corpus: Corpus) -> Iterator[dict[str, str]]:
    """Yield all pairs: the equation's id, the sign, and both sides as MathML."""
    pairs = find_pairs(corpus.forest, PAIR_SIGNS["relations"])
    for pair, (origin, sign) in enumerate(zip(pairs.origin.tolist(), pairs.signs, strict=True)):
        left, right = (to_mathml(to_node(pairs.forest, tree)) for tree in (pair, len(pairs) + pair))
        yield {"id": corpus.get_equation_id(origin), "sign": sign, "left": left, "right": right}


def compute_partner_ranks(vectors: Floats) -> Integers:
    """Rank each formula's partner among all other formulas by cosine; the first rank is 0.

    A partner that ties with other formulas is ranked behind them, and so is one whose cosine is NaN.

    Args:
        vectors: Vectors of n left sides, then of the right sides in the same order.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    count = len(vectors)
    ranks = np.empty(count, np.int64)
    for first in range(0, count, _QUERY_BATCH):
        query = np.arange(first, min(first + _QUERY_BATCH, count))
        row = np.arange(len(query))
        similarity = np.round(unit[query] @ unit.T, _TIE_DECIMALS)
        partner = similarity[row, (query + count // 2) % count]
        similarity[row, query] = -np.inf
        # The partner itself is not behind itself: one less.
        ranks[query] = (~(similarity < partner[:, None])).sum(axis=1) - 1
    return ranks


def compute_mrr(vectors: Floats) -> float:
    """Compute the mean reciprocal rank of all partners."""
    return float(np.mean(1 / (compute_partner_ranks(vectors) + 1)))
