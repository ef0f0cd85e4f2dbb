// Forms of the statements in a formula, as hashes: with names, without, and both of what is left when a relation is
// solved.

import {
  COMPOUND, OperatorNode, RELATION_LABEL, branch, hashTree, mix, mixPair,
} from "./symbols.mjs";
import { weaken } from "./weak_forms.mjs";

// Statements of one formula.
const MAX_STATEMENTS = 8;
const COLOUR_ROUNDS = 2;

// One tree in depth-first order, in columns that are used again for the next one.
const flat = { size: 0, round: 0, variables: 0 };
const FLAT_COLUMNS = ["label", "parent", "place", "variable", "below", "context", "colour", "next"];
for (const name of FLAT_COLUMNS) flat[name] = new Int32Array(1024);

function flattenTree(node, parent, place) {
  const at = flat.size++, { children, kind } = node, { length } = children;
  if (at === flat.label.length)
    for (const name of FLAT_COLUMNS) {
      const larger = new Int32Array(2 * at);
      larger.set(flat[name]);
      flat[name] = larger;
    }
  flat.parent[at] = parent;
  flat.place[at] = place;
  flat.variable[at] = -1;
  flat.label[at] = kind.hash;
  if (node.label === "v") {
    if (kind.round !== flat.round) {
      kind.round = flat.round;
      kind.variable = flat.variables++;
    }
    flat.variable[at] = kind.variable;
  }
  const ordered = length > 1 && !kind.isUnordered;
  for (let k = 0; k < length; k++) flattenTree(children[k], at, ordered ? k + 1 : 0);
}

// Hash of a tree without the names of variables: their colours tell them apart by where they occur (colour refinement).
function hashRenamed(root) {
  flat.size = flat.variables = 0;
  flat.round++;
  flattenTree(root, -1, 0);
  for (let k = 0; k < flat.variables; k++) flat.colour[k] = 1;
  for (let round = 0; round < COLOUR_ROUNDS && flat.variables; round++) {
    hashBelow(flat);
    refineColours(flat);
  }
  return hashBelow(flat);
}

function hashBelow({ size, label, parent, place, variable, below, colour }) {
  for (let at = 0; at < size; at++) below[at] = 0;
  // Operands come after their operator.
  for (let at = size - 1; at >= 0; at--) {
    const hash = variable[at] >= 0 ? colour[variable[at]] : mixPair(label[at], below[at]);
    below[at] = hash;
    if (at) below[parent[at]] += mixPair(place[at], hash);
  }
  return below[0];
}

function refineColours({ size, variables, parent, place, variable, below, context, colour, next }) {
  for (let k = 0; k < variables; k++) next[k] = 0;
  context[0] = mixPair(1, below[0]);
  for (let at = 1; at < size; at++) {
    const above = mixPair(context[parent[at]], place[at]);
    if (variable[at] >= 0) next[variable[at]] += mix(above);
    else context[at] = mixPair(above, below[at]);
  }
  for (let k = 0; k < variables; k++) colour[k] = next[k];
}

/**
 * Find the statements of a formula: itself, then those in its chains, lists and rows. `a = b = c` says `a = b`,
 * `b = c` and `a = c`.
 * @param {OperatorNode} root
 * @returns {OperatorNode[]}
 */
export function findStatements(root) {
  const out = [root];
  addStatements(root, root, out);
  if (out.length > MAX_STATEMENTS) out.length = MAX_STATEMENTS;
  return out;
}

function addStatements(node, root, out) {
  const { children, kind } = node, { length } = children, isRelation = node.is(RELATION_LABEL);
  if (out.length >= MAX_STATEMENTS) return;
  if (isRelation && node !== root) out.push(node);
  if (isRelation && length > 2 && length < 6) {
    for (let i = 0; i < length; i++)
      for (let j = i + 1; j < length && out.length < MAX_STATEMENTS; j++)
        out.push(new OperatorNode(kind, [children[i], children[j]], node.at));
  } else if (node.is(COMPOUND)) {
    for (let k = 0; k < length; k++) addStatements(children[k], root, out);
    if (node.label === "chain") addConclusion(children, out);
  }
}

// a = b < c says a < c; a > b, that is b < a, is read backwards
function addConclusion(links, out) {
  for (let k = 1; k < links.length; k++) {
    const [one, other] = [links[k - 1], links[k]];
    if (one.children.length !== 2 || other.children.length !== 2 || (one.label === "=") === (other.label === "="))
      continue;
    const [equation, relation] = one.label === "=" ? [one, other] : [other, one];
    for (const [mine, theirs] of [[0, 1], [1, 0]]) {
      const at = relation.children.findIndex((child) => hashTree(child) === hashTree(equation.children[mine]));
      if (at < 0) continue;
      out.push(branch(relation.label,
        relation.children.map((child, j) => (j === at ? equation.children[theirs] : child)), relation.at));
      break;
    }
  }
}

/**
 * Add the four hashes of a statement (canonical, renamed, weak, weak renamed) to a list.
 * @param {OperatorNode} node
 * @param {boolean} isFirst whether it is one of the first statements, which are worth solving
 * @param {number[]} hashes
 */
export function hashForms(node, isFirst, hashes) {
  const weak = isFirst ? weaken(node) : node, renamed = hashRenamed(node);
  const forms = [hashTree(node), renamed, hashTree(weak), weak === node ? renamed : hashRenamed(weak)];
  for (const form of forms) hashes.push(form >>> 0);
}
