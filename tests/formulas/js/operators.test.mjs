// Operator trees: the same for usual notations of the same thing, different for different things.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { describeLabels, loadCases, parse, read } from "./engine.mjs";

const { same, different, parsed } = loadCases("notations");
const unordered = new Set(describeLabels().unordered);

// Brings operands whose order means nothing into one order.
function sortOperands(tree) {
  if (!Array.isArray(tree)) return tree;
  const [label, ...operands] = tree, sorted = operands.map(sortOperands);
  if (unordered.has(label)) sorted.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
  return [label, ...sorted];
}

const write = (tree) => JSON.stringify(sortOperands(tree));

describe("notations of one thing have one tree", () => {
  for (const [name, formulas] of Object.entries(same)) {
    test(name, () => assert.equal(new Set(parse(formulas).map(write)).size, 1));
  }
});

describe("different things have different trees", () => {
  for (const formulas of different) {
    test(formulas.join(" / "), () => assert.equal(new Set(parse(formulas).map(write)).size, formulas.length));
  }
});

describe("constructs are parsed by precedence", () => {
  for (const [latex, tree] of Object.entries(parsed)) test(latex, () => assert.deepEqual(parse([latex]), [tree]));
});

test("notation is kept unless canonical trees are wanted", () => {
  assert.deepEqual(parse(["\\sqrt{x}", "a \\ge b"], { canonical: false }), [["sqrt", "v:x"], ["≥", "v:a", "v:b"]]);
});

test("forms of statements do not depend on names if they are renamed", () => {
  const { operators } = read(["a + b = c", "x + y = z"]), forms = [operators.forms.slice(0, 4), operators.forms.slice(4)];
  assert.notEqual(forms[0][0], forms[1][0]);
  assert.equal(forms[0][1], forms[1][1]);
});
