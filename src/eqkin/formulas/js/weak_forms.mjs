// Weak forms of relations: F = ma, a = F/m and m = F/a all become F = am.
//
// Both sides are expanded into monomials: a rational coefficient and operands with rational powers. All are moved to
// one side, common factors and denominators are cleared, logarithms are taken of an equation between an exponential
// and a product, and roots are removed from an equation between two products. What is positive then goes to the left,
// the rest to the right.

import { isExponential, mapChildren, number } from "./canonical.mjs";
import {
  BIG_LABEL, BIG_SUM, EQUALITY, NO_CHILDREN, OperatorNode, SOLVABLE, branch, combine,
  findKind, hashTree, leaf, mixPair,
} from "./symbols.mjs";

// Of one formula; further ones are steps of a derivation.
export const MAX_WEAK_STATEMENTS = 4;
// Larger relations are hardly ever written in another way.
const MAX_WEAK_NODES = 50;
// Of an expanded side.
const MAX_TERMS = 24;
const MAX_COEFFICIENT = 1e9;
// Of powers.
const DENOMINATORS = [1, 2, 3, 4, 6, 12];

class Factor {
  constructor(node, power) {
    // Its hash is known.
    this.node = node;
    this.power = power;
  }
}

class Monomial {
  constructor(numerator, denominator, factors) {
    this.numerator = numerator;
    this.denominator = denominator;
    // Each operand once.
    this.factors = factors;
  }
}
const findDivisor = (a, b) => (b ? findDivisor(b, a % b) : Math.abs(a) || 1);
const NO_FACTORS = [];

function makeAtom(node, power = 1) {
  hashTree(node);
  return [new Monomial(1, 1, [new Factor(node, power)])];
}

function makeConstant(numerator, denominator, factors = NO_FACTORS) {
  const divisor = denominator === 1 ? 1 : findDivisor(numerator, denominator);
  return new Monomial(numerator / divisor, denominator / divisor, factors);
}

// Multiply a list of factors, in place, by others. There are few, so they are compared one by one.
function multiplyFactors(factors, others) {
  for (const other of others) {
    const at = findFactor(factors, other.node);
    if (at < 0) {
      factors.push(other);
      continue;
    }
    const power = factors[at].power + other.power;
    if (power) factors[at] = new Factor(other.node, power);
    else factors.splice(at, 1);
  }
  return factors;
}

function findFactor(factors, { hash }) {
  // A loop, since this is most of the work.
  for (let at = 0; at < factors.length; at++) if (factors[at].node.hash === hash) return at;
  return -1;
}

function multiplyMonomials(terms) {
  const factors = [];
  let numerator = 1, denominator = 1;
  for (const term of terms) {
    numerator *= term.numerator;
    denominator *= term.denominator;
    multiplyFactors(factors, term.factors);
  }
  return makeConstant(numerator, denominator, factors);
}

const multiplySums = (a, b) => a.flatMap((one) => b.map((other) => multiplyMonomials([one, other])));

function addUp(monomials) {
  if (monomials.length < 2) return monomials;
  const keys = monomials.map(hashMonomial);
  if (new Set(keys).size === keys.length) return monomials;
  const out = new Map();
  monomials.forEach((term, k) => {
    const before = out.get(keys[k]);
    if (before === undefined) {
      out.set(keys[k], term);
      return;
    }
    const numerator = before.numerator * term.denominator + term.numerator * before.denominator;
    if (numerator) out.set(keys[k], makeConstant(numerator, before.denominator * term.denominator, term.factors));
    else out.delete(keys[k]);
  });
  return [...out.values()];
}

function hashMonomial({ factors }) {
  let key = 0;
  // Powers have denominators of at most 12: 5040 is a multiple of most of them.
  for (const { node, power } of factors) key = (key + mixPair(node.hash, Math.round(power * 5040))) | 0;
  return key;
}

const negate = ({ numerator, denominator, factors }) => new Monomial(-numerator, denominator, factors);

// A fraction as [numerator, denominator], or null.
function readNumber(node) {
  const { label, kind } = node;
  if (label === "n") return kind.value === undefined ? kind.value = parseNumber(node.text) : kind.value;
  if (label !== "neg" && label !== "frac") return null;
  const [above, below] = node.children.map(readNumber);
  if (label === "neg") return above && [-above[0], above[1]];
  return above && below?.[0] ? [above[0] * below[1], above[1] * below[0]] : null;
}

function parseNumber(text) {
  // Written by buildSum.
  if (text.includes("/")) return text.split("/").map(Number);
  if (!/^[0-9]{1,8}([.][0-9]{1,6})?$/.test(text)) return null;
  const scale = 10 ** (text.split(".")[1]?.length ?? 0);
  const value = Math.round(parseFloat(text) * scale);
  const divisor = findDivisor(value, scale);
  return [value / divisor, scale / divisor];
}

function expand(node) {
  node.sum ??= expandNode(node);
  return node.sum;
}

function expandNode(node) {
  const { label, children } = node;
  if (label === "*" && children.every((child) => expand(child).length === 1))
    return [multiplyMonomials(children.map((child) => child.sum[0]))];
  const out = expandOperator(node);
  const isExact = out?.length <= MAX_TERMS
    && out.every(({ numerator, denominator }) =>
      Math.abs(numerator) < MAX_COEFFICIENT && denominator < MAX_COEFFICIENT);
  return isExact ? out : makeAtom(node);
}

// The monomials of a node; null if it is none.
function expandOperator(node) {
  const { label, children } = node;
  if (label === "n") {
    const value = readNumber(node);
    return value && (value[0] ? [makeConstant(...value)] : []);
  }
  if (!children.length) return null;
  if (label === "neg") return expand(children[0]).map(negate);
  if (label === "+") return addUp(children.flatMap(expand));
  if (label === "*") {
    const sums = children.map(expand);
    let out = sums[0];
    for (let k = 1; k < sums.length && out.length <= MAX_TERMS; k++) out = multiplySums(out, sums[k]);
    return addUp(out);
  }
  if (label === "frac") return multiplySums(expand(children[0]), raise(children[1], -1));
  if (label === "pow") {
    const power = readNumber(children[1]);
    return power === null ? raiseSymbolically(node) : raise(children[0], power[0] / power[1]);
  }
  if (label === "f:log" && children.length === 1) {
    const inner = expand(children[0]);
    return inner.length === 1 && inner[0].numerator > 0 ? takeLogarithm(inner[0], node.at) : null;
  }
  return node.is(BIG_SUM) ? pullOutConstants(node) : null;
}

// Constant factors come before a sum or an integral.
function pullOutConstants(node) {
  const [first, ...ranges] = node.children, body = expand(first), bound = new Set();
  for (const range of ranges) if (range.label !== "to") collectVariables(range, bound);
  if (body.length !== 1 || !bound.size) return null;
  const isBound = (factor) => mentions(factor.node, bound), [{ factors, numerator, denominator }] = body;
  const outside = makeConstant(numerator, denominator, factors.filter((factor) => !isBound(factor)));
  const inside = makeConstant(1, 1, factors.filter(isBound));
  return multiplySums([outside], makeAtom(branch(node.label, [buildSum([inside], node.at), ...ranges], node.at)));
}

function collectVariables(node, out) {
  if (node.label === "v") out.add(node.text);
  for (const child of node.children) collectVariables(child, out);
}

function mentions(node, names) {
  return (node.label === "v" && names.has(node.text)) || node.children.some((child) => mentions(child, names));
}

function raise(base, power) {
  hashTree(base);
  // What does not commute cannot be cancelled.
  if (base.hasMatrix) return makeAtom(base, power);
  const sum = expand(base);
  if (sum.length !== 1) {
    if (!Number.isInteger(power) || power < 1 || sum.length ** power > MAX_TERMS)
      return makeAtom(buildSum(sum, base.at), power);
    let out = sum;
    for (let k = 1; k < power; k++) out = multiplySums(out, sum);
    return addUp(out);
  }
  const raised = raiseMonomial(sum[0], power);
  return raised === null ? makeAtom(base, power) : [raised];
}

// (ab)^{2n+1} = (a^n)^2 a (b^n)^2 b; null if the base is a sum or has a sign
function raiseSymbolically(node) {
  const base = expand(node.children[0]), exponent = expand(node.children[1]);
  if (base.length !== 1 || base[0].numerator < 0 || exponent.length > 4) return null;
  const factors = listFactors(base[0]);
  let out = [makeConstant(1, 1)];
  for (const term of exponent) {
    const unit = new Monomial(1, 1, term.factors), times = term.numerator / term.denominator;
    for (const { node: factor, power } of factors)
      out = multiplySums(out,
        term.factors.length
          ? makeAtom(branch("pow", [factor, buildSum([unit], node.at)], node.at), power * times)
          : raise(factor, power * times));
  }
  return out;
}

// The factors of a monomial, its numbers among them.
function listFactors(term) {
  const factors = term.factors.slice();
  for (const [value, power] of [[term.numerator, 1], [term.denominator, -1]])
    if (value !== 1) factors.push(makeAtom(number(String(value), 0), power)[0].factors[0]);
  return factors;
}

function raiseMonomial(term, power) {
  const factors = term.factors.map((factor) => new Factor(factor.node, factor.power * power));
  if (Number.isInteger(power)) {
    const [above, below] = [term.numerator ** Math.abs(power), term.denominator ** Math.abs(power)];
    return power > 0
      ? new Monomial(above, below, factors)
      : new Monomial(above < 0 ? -below : below, Math.abs(above), factors);
  }
  if (term.numerator < 0) return null;
  const numbers = listFactors(new Monomial(term.numerator, term.denominator, NO_FACTORS));
  return new Monomial(1, 1,
    multiplyFactors(factors, numbers.map((factor) => new Factor(factor.node, factor.power * power))));
}

// log(a^p b^q) = p log a + q log b; the logarithm of an exponential is its exponent.
function takeLogarithm(term, at) {
  return addUp(listFactors(term).flatMap(({ node, power }) => {
    const scale = toFraction(power);
    const inner = isExponential(node) ? expand(node.children[1]) : makeAtom(branch("f:log", [node], at));
    return scale === null
      ? makeAtom(branch("f:log", [node], at), power)
      : multiplySums(inner, [makeConstant(scale[0], scale[1])]);
  }));
}

const isWhole = (x) => Math.abs(x - Math.round(x)) < 1e-9;

function toFraction(power) {
  const denominator = DENOMINATORS.find((q) => isWhole(power * q));
  return denominator === undefined ? null : [Math.round(power * denominator), denominator];
}

// Of n/1, by n.
const wholeKinds = [];

function findFractionKind(numerator, denominator) {
  if (denominator !== 1 || numerator < 0 || numerator > 99) return findKind("n", numerator + "/" + denominator);
  return wholeKinds[numerator] ??= findKind("n", numerator + "/1");
}

function findPowerKind(power) {
  const fraction = Number.isInteger(power) ? [power, 1] : toFraction(power);
  return fraction === null ? findKind("n", power.toFixed(6)) : findFractionKind(fraction[0], fraction[1]);
}

function buildSum(terms, at) {
  return terms.length ? combine("+", terms.map((term) => buildProduct(term, at)), at) : number("0", at);
}

function buildProduct({ numerator, denominator, factors }, at) {
  const nodes = [], size = Math.abs(numerator);
  if (size !== 1 || denominator !== 1 || !factors.length)
    nodes.push(new OperatorNode(findFractionKind(size, denominator), NO_CHILDREN, at));
  for (const { node, power } of factors)
    nodes.push(power === 1 ? node : branch("pow", [node, new OperatorNode(findPowerKind(power), NO_CHILDREN, at)], at));
  const product = combine("*", nodes, at);
  return numerator < 0 ? branch("neg", [product], at) : product;
}

// Multiply all terms so that no operand has a negative power, or a positive one in all of them.
function clearDenominators(terms) {
  // The lowest power of each operand, and in how many terms it is.
  const lowest = [], times = [];
  let numerators = 0, denominators = 1;
  for (const { numerator, denominator, factors } of terms) {
    numerators = findDivisor(numerator, numerators);
    denominators *= denominator / findDivisor(denominator, denominators);
    for (const { node, power } of factors) {
      let at = findFactor(lowest, node);
      if (at < 0) {
        at = lowest.push(new Factor(node, power)) - 1;
        times.push(0);
      }
      lowest[at].power = Math.min(lowest[at].power, power);
      times[at]++;
    }
  }
  const inverse = lowest
    .filter(({ power }, k) => power && (power < 0 || times[k] === terms.length))
    .map(({ node, power }) => new Factor(node, -power));
  if (!inverse.length && numerators === denominators) return terms;
  return multiplySums(terms, [new Monomial(denominators, numerators || 1, inverse)]);
}

const isExpandable = ({ node: { label }, power }) =>
  (label === "+" || label === "n") && power > 0 && Number.isInteger(power);

// Expand the sums among the operands, and numbers whose powers have become whole.
function expandFactors(terms) {
  if (!terms.some(({ factors }) => factors.some(isExpandable))) return null;
  return addUp(terms.flatMap(({ numerator, denominator, factors }) => {
    const kept = factors.filter((factor) => !isExpandable(factor));
    let product = [new Monomial(numerator, denominator, kept)];
    for (const { node, power } of factors.filter(isExpandable)) {
      const value = node.label === "n" && readNumber(node);
      product = multiplySums(product, value ? [raiseMonomial(makeConstant(...value), power)] : raise(node, power));
    }
    return product;
  }));
}

// An equation between two products without roots; between an exponential and a product, its logarithm.
function simplifyPair(terms) {
  const one = terms[0], other = terms[1], both = one.factors.concat(other.factors);
  const sides = [new Monomial(Math.abs(one.numerator), one.denominator, one.factors),
    new Monomial(Math.abs(other.numerator), other.denominator, other.factors)];
  if (one.numerator * other.numerator < 0 && both.some(({ node }) => isExponential(node)))
    return addUp([...takeLogarithm(sides[0], 0), ...takeLogarithm(sides[1], 0).map(negate)]);
  const degree = both.every(({ power }) => Number.isInteger(power))
    ? 1
    : DENOMINATORS.find((q) => both.every(({ power }) => isWhole(power * q)));
  if (degree === undefined || degree === 1) return null;
  const sign = degree % 2 || one.numerator * other.numerator < 0 ? -1 : 1;
  const [a, b] = sides.map((side) => raiseMonomial(side, degree));
  for (const side of [a, b]) for (const factor of side.factors) factor.power = Math.round(factor.power);
  return [a, new Monomial(sign * b.numerator, b.denominator, b.factors)];
}

// What does not matter for the relation: the argument of a function that is the same everywhere (f(x) is f), the
// variable of derivatives if there is only one, the range from 1 to n of a sum, max or sup.
class Simplifier {
  constructor(root) {
    // Function -> hash of its arguments; 0: they differ or are no variables.
    this.arguments = new Map();
    this.byVariable = new Set();
    this.visit(root);
  }

  visit(node) {
    if (node.label === "app" && node.children[0].label === "v") {
      const name = node.children[0].text, before = this.arguments.get(name);
      const isPlain = node.children.every((child) => !child.children.length && child.label !== "n");
      const hash = isPlain ? hashTree(node) : 0;
      this.arguments.set(name, before === undefined || before === hash ? hash : 0);
    } else if (node.label === "D")
      for (const by of node.children.slice(1)) if (by.label !== "any") this.byVariable.add(hashTree(by));
    for (const child of node.children) if (child.hasOmissible) this.visit(child);
  }

  simplify(node) {
    if (!node.hasOmissible) return node;
    if (node.label === "app" && this.arguments.get(node.children[0].text)) return node.children[0];
    if (node.label === "D" && this.byVariable.size < 2)
      return branch("D",
        [this.simplify(node.children[0]), ...node.children.slice(1).map((by) => leaf("any", "", by.at))], node.at);
    if (node.is(BIG_LABEL) && node.children.length === 3) {
      const [body, from, to] = node.children, start = from.children[0];
      if (from.label === "from"
        && start.label === "="
        && start.children[0].label === "v"
        && start.children[1].label === "n"
        && to.children[0].label === "v")
        return branch(node.label, [this.simplify(body), branch("from", [start.children[0]], from.at)], node.at);
    }
    const simplified = mapChildren(node, (child) => this.simplify(child));
    return node.label === "sup"
      ? branch("max", simplified.children, node.at)
      : node.label === "inf" ? branch("min", simplified.children, node.at) : simplified;
  }
}

/**
 * Return the weak form of a relation; the node itself if it has none.
 * @param {OperatorNode} node
 * @returns {OperatorNode}
 */
export function weaken(node) {
  if (node.children.length !== 2 || !node.is(SOLVABLE)) return node;
  hashTree(node);
  if (node.size > MAX_WEAK_NODES) return node;
  const isEquality = node.is(EQUALITY);
  const sides = node.hasOmissible ? new Simplifier(node).simplify(node).children : node.children;
  let terms = addUp(expand(sides[0]).concat(expand(sides[1]).map(negate)));
  for (let rounds = 0; rounds < 4 && terms.length; rounds++) {
    if (node.hasMatrix) break;
    if (terms.length > 1) terms = clearDenominators(terms);
    const next = expandFactors(terms) ?? (isEquality && terms.length === 2 ? simplifyPair(terms) : null);
    if (next === null) break;
    if (next.length > MAX_TERMS) return node;
    terms = next;
  }
  // Nothing is left of it.
  if (terms.every(({ factors }) => !factors.length)) return node;
  const left = terms.filter(({ numerator }) => numerator > 0);
  const right = terms.filter(({ numerator }) => numerator < 0);
  return branch(node.label === "≈" ? "=" : node.label, [buildSum(left, node.at), buildSum(right.map(negate), node.at)],
    node.at);
}

