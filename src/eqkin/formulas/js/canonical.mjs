// Canonical forms: `canonicalise` applies RULES bottom-up, one table of notations that mean the same.

import {
  BOUND, COORDINATES, COUNT, EQUATION, MATRIX, OperatorNode, PAIR, USUALLY_DIFFERENTIATED, branch, combine, hashTree,
  isNumber, leaf, listOf, readPairs,
} from "./symbols.mjs";

export const number = (text, at) => leaf("n", text, at);
export const isMatrix = (node) => node.is(MATRIX) || (node.label === "v" && /^[A-ZΑ-Ω]/u.test(node.text))
  || (node.label === "*" && node.children.every(isMatrix)) || (node.label === "+" && node.children.some(isMatrix));
const hasChild = ({ children }, test) => children.some(test);
const isOf = (label) => (node) => node.label === label;
const [isSum, isNumeral, isDerivative] = ["+", "n", "D"].map(isOf);
const isEuler = (node) => node.text === "e" && (node.label === "v" || node.label === "c");
export const isExponential = (node) => node.label === "pow" && isEuler(node.children[0]);
export const relabel = (label) => (node) => branch(label, node.children, node.at);
const root = (node, degree) =>
  branch("pow", [node.children[0], branch("frac", [number("1", node.at), degree], node.at)], node.at);
// x^{-n} is 1/x^n, except for matrices, whose inverse stays where it is, and for exponentials
const invert = (node) =>
  (isNumber(node.children[1].children[0], "1")
    ? node.children[0]
    : branch("pow", [node.children[0], node.children[1].children[0]], node.at));
const isInverse = (node) =>
  node.label === "pow" && node.children[1].label === "neg" && !isMatrix(node.children[0]) && !isExponential(node);
const negateIf = (negative, node) => (negative ? branch("neg", [node], node.at) : node);

// What changes a product that it is a part of.
const isComposed = (node) => node.label === "*" || node.label === "neg" || node.label === "frac" || isInverse(node);

// Labels that mean the same as another one.
const SYNONYMS = readPairs(`
  column binom  prime transpose  adjoint transpose  := =  =: =  ≡ =  ≜ =  ≝ =  ≐ =  ≅ ≈  ≃ ≈
  f:div div  f:grad grad  f:curl curl  ∬ ∫  ∭ ∫  ∮ ∫  ∯ ∫
`);
// Relations that say the same of their operands in the other order.
const CONVERSES = readPairs(`> <  ≥ ≤  ≫ ≪  ⊃ ⊂  ∋ ∈  ← →  ≻ ≺  ≽ ≼`);
const FUNCTION_LETTERS = readPairs(`f:p P  f:e E  f:P P  mean E`);

// label -> rewrite to an equivalent notation, or null
export const RULES = {
  sqrt: (node) => root(node, number("2", node.at)),
  root: (node) => root(node, node.children[1]),
  "f:exp": (node) => branch("pow", [leaf("c", "e", node.at), ...node.children.slice(0, 1)], node.at),
  star: (node) =>
    branch(isMatrix(node.children[0]) ? "transpose" : "bar", node.children, node.at),
  "×": (node) => (hasChild(node, isNumeral) ? relabel("*")(node) : null),
  neg: (node) =>
    (node.children[0].label === "dots"
      ? node.children[0]
      : node.children[0].label === "neg" ? node.children[0].children[0] : null),
  "+": (node) =>
    (hasChild(node, isSum)
      ? branch("+", node.children.flatMap((child) => listOf(child, "+")), node.at)
      : findLaplacian(node)),
  "*": (node) => readPrescript(node) ?? multiply(node), frac: divide,
  pow: (node) =>
    (isInverse(node)
      ? branch("frac", [number("1", node.at), invert(node)], node.at)
      : /^0?\.5$/.test(node.children[1].text)
        ? root(node, number("2", node.at))
        : readExponential(node) ?? readCombinations(node)),
  div: (node) => (node.children[0].label === "grad" ? relabel("laplace")(node.children[0]) : null),
  set: (node) =>
    (node.children.length === 1 && node.children[0].label === "colon"
      ? branch("set", [relabel("given")(node.children[0])], node.at)
      : null),
  v: (node) => (node.text === "π" ? leaf("c", "π", node.at) : node.name !== null ? readSubscript(node) : null),
  app: readChoice, chain: joinChain,
  "∈": (node) =>
    (node.children[1]?.is(PAIR) && node.children[1].children.length === 2
      ? branch("∈", [node.children[0], relabel("interval")(node.children[1])], node.at)
      : null),
  commutator: (node) => (node.children.some((child) => child.is(BOUND)) ? relabel("interval")(node) : null),
  max: uniteOperands,
  min: uniteOperands,
};
for (const [label, other] of SYNONYMS) RULES[label] = relabel(other);
for (const [label, other] of CONVERSES)
  RULES[label] = (node) => branch(other, [...node.children].reverse(), node.at);
for (const [label, letter] of FUNCTION_LETTERS)
  RULES[label] = (node) => branch("app", [leaf("v", letter, node.at), ...node.children], node.at);

// u_t, u_{xx}: derivatives, if the letter is one of those that are usually differentiated by coordinates.
function readSubscript(node) {
  const { base, letters } = node.name;
  const isDerivative = USUALLY_DIFFERENTIATED.has(base)
    && letters?.length > 0
    && letters.length <= 3
    && node.text.length === base.length + 1 + letters.length
    && letters.every((letter) => COORDINATES.has(letter));
  return isDerivative
    ? branch("D", [base, ...letters].map((letter) => leaf("v", letter, node.at)), node.at)
    : null;
}

// The base of an exponential is a number and cannot be renamed; e^2 may be the square of a variable.
function readExponential(node) {
  const base = node.children[0], exponent = node.children[1];
  return base.label === "v" && base.text === "e" && exponent.label !== "n"
    ? branch("pow", [leaf("c", "e", base.at), exponent], node.at)
    : null;
}

// max(a, b) is max{a, b}.
function uniteOperands(node) {
  const [first, ...range] = node.children;
  return first.label === "tuple" ? branch(node.label, [relabel("set")(first), ...range], node.at) : null;
}

// a := b = c says the same as a = b = c.
function joinChain(node) {
  const links = node.children, [{ label }] = links;
  if (!links[0].is(EQUATION)
    || !links.every((link, k) =>
      link.label === label
        && link.children.length === 2
        && (!k || hashTree(link.children[0]) === hashTree(links[k - 1].children[1]))))
    return null;
  return branch(label, [links[0].children[0], ...links.map((link) => link.children[1])], node.at);
}

// C_n^k, C^n_k and C(n, k) are binomial coefficients.
function readCombinations(node) {
  const base = node.children[0];
  const upper = node.children[1];
  const isIndexed = base.label === "idx" && base.children.length === 2 && base.children[0].text === "C";
  const lower = isIndexed
    ? base.children[1]
    : base.name !== null && base.name.base === "C" ? base.name.subscript : null;
  return lower !== null && lower.is(COUNT) && upper.is(COUNT)
    ? branch("binom", /^[nN]$/.test(upper.text) && /^[krji]$/.test(lower.text) ? [upper, lower] : [lower, upper],
      node.at)
    : null;
}

// {}^t X is a transpose, {}_n C_k a binomial coefficient.
const isPrescript = (node) => (node.label === "pow" || node.label === "idx") && node.children[0].label === "empty";
function readPrescript(node) {
  if (!hasChild(node, isPrescript)) return null;
  const k = node.children.findIndex(isPrescript), script = node.children[k].children[1], base = node.children[k + 1];
  if (base === undefined) return null;
  const isChoice = base.name !== null && base.name.base === "C" && script.is(COUNT) && base.name.subscript.is(COUNT);
  const isTranspose = node.children[k].label === "pow" && /^[tT]$/.test(script.text);
  if (!isChoice && !isTranspose) return null;
  const read = isChoice
    ? branch("binom", [script, base.name.subscript], node.at)
    : branch("transpose", [base], node.at);
  return combine("*", [...node.children.slice(0, k), read, ...node.children.slice(k + 2)], node.at);
}

function readChoice(node) {
  if (node.children.length !== 3 || node.children[0].text !== "C") return null;
  const [n, k] = node.children.slice(1).map((child) => (child.label === "+" ? child.children[0].text : child.text));
  return /^[nNmM]$/.test(n) && /^[krmji]$/.test(k) ? branch("binom", node.children.slice(1), node.at) : null;
}

// u_xx + u_yy (+ u_zz) is the Laplacian of u.
function findLaplacian(node) {
  if (!hasChild(node, isDerivative)) return null;
  const isSecond = (child, letter) =>
    child.label === "D"
      && child.children.length === 3
      && child.children.slice(1).every((v) => v.label === "v" && v.text === letter);
  const first = node.children.find((child) => isSecond(child, "x"));
  if (first === undefined) return null;
  const parts = ["x", "y", "z"].map((letter) =>
    node.children.find((child) => isSecond(child, letter) && child.children[0].text === first.children[0].text));
  if (parts[1] === undefined) return null;
  return combine("+",
    [branch("laplace", [first.children[0]], first.at), ...node.children.filter((child) => !parts.includes(child))],
    node.at);
}

// Products are flat; signs come to the front, fractions and inverses become one fraction.
function multiply(node) {
  if (!hasChild(node, isComposed)) return null;
  const above = [], below = [];
  let negative = false, changed = false;
  for (let factor of node.children.flatMap((child) => listOf(child, "*"))) {
    if (factor.label === "neg") {
      [factor] = factor.children;
      negative = !negative;
      changed = true;
    }
    if (isInverse(factor)) below.push(invert(factor));
    else addQuotient(factor, above, below);
  }
  if (!below.length)
    return changed || above.length !== node.children.length ? negateIf(negative, branch("*", above, node.at)) : null;
  const numerator = above.filter((factor) => !isNumber(factor, "1"));
  const top = numerator.length ? combine("*", numerator, node.at) : number("1", node.at);
  return negateIf(negative, branch("frac", [top, combine("*", below, node.at)], node.at));
}

// Add the factors of a product or a fraction to those above and below a line.
function addQuotient(node, above, below) {
  const [top, bottom] = node.label === "frac" ? node.children : [node];
  above.push(...listOf(top, "*"));
  if (bottom) below.push(...listOf(bottom, "*"));
}

function divide(node) {
  const isPlain = node.children.every(({ label }) => label !== "neg" && label !== "frac");
  if (isPlain) return null;
  const [above, below] = node.children.map((part) => (part.label === "neg" ? part.children[0] : part));
  const negative = (above === node.children[0]) !== (below === node.children[1]);
  const top = [], bottom = [];
  addQuotient(above, top, bottom);
  addQuotient(below, bottom, top);
  if (!negative && above.label !== "frac" && below.label !== "frac") return null;
  const numerator = top.length > 1 ? top.filter((factor) => !isNumber(factor, "1")) : top;
  const result = branch("frac",
    [numerator.length ? combine("*", numerator, node.at) : number("1", node.at), combine("*", bottom, node.at)],
    node.at);
  return negateIf(negative, result);
}

// The node with each child changed; itself if none of them is.
export function mapChildren(node, change) {
  let result = node;
  for (let k = 0; k < node.children.length; k++) {
    const child = change(node.children[k]);
    if (child === node.children[k]) continue;
    if (result === node) result = new OperatorNode(node.kind, node.children.slice(), node.at);
    result.children[k] = child;
  }
  return result;
}

/**
 * Apply RULES to a tree, from the leaves up.
 * @param {OperatorNode} node
 * @returns {OperatorNode}
 */
export function canonicalise(node) {
  if (!node.children.length && (node.label !== "v" || (node.name === null && node.text !== "π"))) return node;
  let result = mapChildren(node, canonicalise);
  for (let rounds = 0; rounds < 8; rounds++) {
    const next = RULES[result.label]?.(result);
    if (!next) break;
    result = next;
  }
  return result;
}
