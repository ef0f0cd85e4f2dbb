// What another author may write instead of a formula, although it does not mean exactly the same: a sum for an
// integral, u for u(x, t), x(n) for x_n, a term on the other side, another name for what is defined, no constants.
//
// Unlike notations, paraphrases have other canonical forms. Each uses some kinds (CHANCES), everywhere in the formula.

import { isMatrix, mapChildren, number, relabel } from "../../formulas/js/canonical.mjs";
import {
  INTEGRAL, RELATION, USUALLY_DIFFERENTIATED, branch, combine, hashTree, isNumber, leaf, listOf, readPairs, roleOf,
  words,
} from "../../formulas/js/symbols.mjs";

// Their names mean something.
export const FIXED_LETTERS = words("d e i E P T C H O ∂ ∇ Δ π");
// kind of paraphrase -> probability that it is used
const CHANCES = {
  arguments: 0.4, sequence: 0.35, accents: 0.4, subscripts: 0.25, ranges: 0.4, continuous: 0.3, laplacian: 0.5,
  products: 0.5, norms: 0.4, states: 0.6, logic: 0.7, bounds: 0.5, constants: 0.25, chain: 0.5, move: 0.25,
  defined: 0.35,
};
const LOGIC = readPairs(`∪ ∨  ∩ ∧  ⋃ ⋁  ⋂ ⋀  ∨ ∪  ∧ ∩  ⋁ ⋃  ⋀ ⋂`);
const DEFINED = ["E", "L", "J", "F", "S", "Q", "R", "f", "g", "h", "y", "z", "u", "w"];
const INDICES = /^[i-nt]$/;
const isLetterNode = (node) => node.label === "v" && node.text.length === 1;

export class Paraphrase {
  constructor(root, random, at) {
    this.random = random;
    // A presentation node that is no letter: new variables are printed by their text.
    this.at = at;
    this.used = new Set(Object.keys(CHANCES).filter((kind) => random() < CHANCES[kind]));
    // Function -> its only arguments, or null.
    this.argumentsOf = new Map();
    // Letter -> how often it occurs.
    this.letters = new Map();
    for (let level = [root]; level.length; level = level.flatMap((node) => node.children))
      for (const node of level) {
        if (node.label === "v") this.letters.set(node.text, (this.letters.get(node.text) ?? 0) + 1);
        if (node.label !== "app" || !isLetterNode(node.children[0])) continue;
        const [{ text }, ...list] = node.children;
        const own = list.every(isLetterNode) ? list.map((v) => v.text).join() : null;
        this.argumentsOf.set(text, this.argumentsOf.has(text) && this.argumentsOf.get(text) !== own ? null : own);
      }
  }

  variable(text) {
    return leaf("v", text, this.at);
  }

  branch(label, ...children) {
    return branch(label, children, this.at);
  }

  apply(root) {
    const node = this.change(root);
    return node.label === "chain" || roleOf(node.label) & RELATION ? this.changeStatement(node) : node;
  }

  change(node) {
    if (!node.children.length) return this.changeLeaf(node);
    let changed = null;
    for (const kind in CHANGES[node.label] ?? {})
      if (this.used.has(kind)) changed ??= CHANGES[node.label][kind](node, this);
    return mapChildren(changed ?? node, (child) => this.change(child));
  }

  changeLeaf(node) {
    if (node.label !== "v") return node;
    if (node.name !== null) {
      const { base, subscript } = node.name, [letter] = base.split(".");
      if (subscript.label === "v" && INDICES.test(subscript.text))
        return this.used.has("sequence")
          ? this.branch("app", this.variable(letter), this.variable(subscript.text))
          : node;
      return this.used.has("subscripts") && !USUALLY_DIFFERENTIATED.has(letter) ? this.variable(letter) : node;
    }
    return this.used.has("accents") && /^\p{L}\./u.test(node.text) ? this.variable(node.text[0]) : node;
  }

  // A sum over i of x_i and an integral of x(t) by t.
  integrate(node) {
    const range = node.children.find((child) => child.label === "from")?.children[0];
    const index = range === undefined ? undefined : [range, range.children[0]].find((part) => part?.label === "v");
    if (index === undefined || !isLetterNode(index)) return null;
    const fresh = INDICES.test(index.text)
      ? ["x", "t", "s", "y"].find((letter) => !this.letters.has(letter))
      : index.text;
    if (fresh === undefined) return null;
    const replace = (part) => {
      if (part.label === "idx" && part.children.length === 2 && part.children[1].text === index.text)
        return this.branch("app", part.children[0], this.variable(fresh));
      return part.label === "v" && part.text === index.text ? this.variable(fresh) : mapChildren(part, replace);
    };
    return this.branch("∫", replace(node.children[0]), this.branch("by", this.variable(fresh)));
  }

  add(node) {
    const by = node.children.filter((child) => child.label === "by");
    return by.length === 1 && isLetterNode(by[0].children[0])
      ? this.branch("∑", node.children[0], this.branch("from", by[0].children[0]))
      : null;
  }

  changeStatement(node) {
    let { label, children } = node;
    if (label === "chain") return this.used.has("chain") ? children[Math.floor(this.random() * children.length)] : node;
    if (children.length > 2 && this.used.has("chain"))
      children = this.random() < 0.5 ? [children[0], children.at(-1)] : children.slice(0, 2);
    if (children.length !== 2 || label === "⇒" || label === "⇔" || label === "→")
      return branch(label, children, node.at);
    let [left, right] = children;
    const head = left.label === "app" || left.label === "idx" ? left.children[0] : left;
    const isName = (isLetterNode(head) || head.name !== null) && !FIXED_LETTERS.has(head.text);
    if (this.used.has("defined") && isName && right.children.length > 1 && label === "=" && !this.occurs(right, left)) {
      const fresh = this.variable(DEFINED[Math.floor(this.random() * DEFINED.length)]);
      left = left.label === "v" || this.random() < 0.5
        ? fresh
        : branch(left.label, [fresh, ...left.children.slice(1)], left.at);
    }
    if (this.used.has("move")) [left, right] = this.move(left, right, label === "=");
    return branch(label, [left, right], node.at);
  }

  occurs(node, name) {
    return hashTree(node) === hashTree(name) || node.children.some((child) => this.occurs(child, name));
  }

  // A term goes to the other side; a factor only in equations, where its sign does not matter.
  move(left, right, isEquation) {
    const negate = (node) => (node.label === "neg" ? node.children[0] : this.branch("neg", node));
    const add = (node, term) => branch("+", [...listOf(node, "+"), term], this.at);
    const multiply = (node, factor) =>
      (isNumber(node, "1") ? factor : branch("*", [factor, ...listOf(node, "*")], this.at));
    const isMovable = (factor) =>
      factor.label === "v"
        || factor.label === "n"
        || factor.label === "c"
        || factor.label === "idx"
        || factor.label === "pow";
    if (right.label === "+") {
      const k = Math.floor(this.random() * right.children.length);
      const rest = right.children.filter((_, other) => other !== k);
      return [add(left, negate(right.children[k])), combine("+", rest, this.at)];
    }
    if (isEquation && right.label === "frac") return [multiply(left, right.children[1]), right.children[0]];
    if (isEquation && right.label === "*" && isMovable(right.children[0]) && !isMatrix(right.children[0]))
      return [this.branch("frac", left, right.children[0]), combine("*", right.children.slice(1), this.at)];
    return isNumber(right, "0") ? [left, right] : [add(left, negate(right)), number("0", this.at)];
  }
}

const keepFirst = (node) => node.children[0];
// From i = 1 to n: over i.
const dropRange = (node) =>
  branch(node.label, node.children.filter((child) => child.label !== "to").flatMap((child) => {
  if (child.label !== "from" || roleOf(node.label) & INTEGRAL) return child.label === "from" ? [] : [child];
  return child.children[0].label === "=" ? [branch("from", child.children[0].children.slice(0, 1), child.at)] : [child];
}), node.at);
function dropConstants(node, paraphrase) {
  const isConstant = (factor) =>
    factor.label === "n"
      || (factor.label === "frac" && factor.children.every((part) => part.label === "n"))
      || (isLetterNode(factor) && paraphrase.letters.get(factor.text) === 1 && paraphrase.random() < 0.5);
  const rest = node.children.filter((factor) => !isConstant(factor));
  return rest.length && rest.length < node.children.length ? combine("*", rest, node.at) : null;
}

// Label -> kind of paraphrase -> how to change a node of this label, or null to leave it.
const CHANGES = {
  app: {
    sequence: ({ children: [name, ...list] }, paraphrase) =>
      (isLetterNode(name) && list.length === 1 && isLetterNode(list[0]) && INDICES.test(list[0].text)
        ? paraphrase.branch("idx", name, list[0])
        : null),
    arguments: ({ children: [name] }, paraphrase) =>
      (isLetterNode(name) && !FIXED_LETTERS.has(name.text) && paraphrase.argumentsOf.get(name.text) ? name : null),
  },
  idx: { sequence: (node, paraphrase) =>
    (node.children.length === 2 ? paraphrase.branch("app", ...node.children) : null) },
  max: { bounds: relabel("sup") },
  sup: { bounds: relabel("max") },
  min: { bounds: relabel("inf") },
  inf: { bounds: relabel("min") },
  div: { laplacian: ({ children: [inner] }, paraphrase) =>
    (inner.label === "grad" ? paraphrase.branch("laplace", ...inner.children) : null) },
  hat: { accents: keepFirst }, tilde: { accents: keepFirst }, check: { accents: keepFirst },
  "∑": { continuous: (node, paraphrase) => paraphrase.integrate(node), ranges: dropRange },
  "∫": { continuous: (node, paraphrase) => paraphrase.add(node), ranges: dropRange },
  "∏": { ranges: dropRange },
  D: { laplacian: (node, paraphrase) =>
    (node.children.length === 3 && node.children.slice(1).every((v) => v.text === "x")
      ? paraphrase.branch("laplace", node.children[0])
      : null) },
  laplace: { laplacian: (node, paraphrase) =>
    paraphrase.branch("D", node.children[0], paraphrase.variable("x"), paraphrase.variable("x")) },
  inner: { products: ({ children: [one, other] }, paraphrase) =>
    paraphrase.branch("*", paraphrase.random() < 0.7 ? paraphrase.branch("transpose", one) : one, other) },
  "*": {
    products: ({ children }, paraphrase) =>
      (children.length === 2 && children[0].label === "transpose"
        ? paraphrase.branch("inner", children[0].children[0], children[1])
        : null),
    constants: dropConstants,
  },
  norm: { norms: relabel("abs") }, abs: { norms: relabel("norm") },
  ket: { states: keepFirst }, bra: { states: keepFirst },
};
for (const [label, other] of LOGIC) CHANGES[label] = { logic: relabel(other) };
