// Which formulas match a pattern, and how two formulas are related.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { explain, loadCases, match, read } from "./engine.mjs";

const FORM_KINDS = ["canonical", "renamed", "weak", "weak renamed"];
const EXTENTS = { whole: 2, part: 1, none: 0 };

// A tree of nested lists as Python sends it.
function flatten(tree) {
  const labels = [], depth = [];
  const add = (node, level) => {
    const [label, ...operands] = Array.isArray(node) ? node : [node];
    labels.push(label);
    depth.push(level);
    for (const operand of operands) add(operand, level + 1);
  };
  add(tree, 0);
  return { labels, sizes: [labels.length], label: labels.map((_, number) => number), depth };
}

describe("patterns", () => {
  for (const [extent, cases] of Object.entries(loadCases("matches"))) {
    for (const [pattern, latex] of cases) {
      test(`${extent}: ${JSON.stringify(pattern)} in ${latex}`, () => {
        assert.deepEqual(match(flatten(pattern), read([latex]).operators), [EXTENTS[extent]]);
      });
    }
  }
});

function relate(query, hit) {
  const asked = read([query]), found = read([hit]), [ours, theirs] = [asked, found].map(({ operators }) => operators.forms);
  const common = FORM_KINDS.filter((_, kind) => ours[kind] === theirs[kind]);
  return explain(asked.trees, found.trees, [common])[0];
}

describe("relations", () => {
  for (const [query, hit, relation, changes] of loadCases("relations")) {
    test(`${hit} is ${relation || "not related to"} ${query}`, () => {
      const found = relate(query, hit);
      assert.equal(found.relation, relation);
      assert.deepEqual(found.changes, changes);
    });
  }
});

test("a formula matches itself node by node", () => {
  const { pairings } = relate("E = mc^2", "E = mc^2");
  assert.deepEqual(pairings, Array.from({ length: 7 }, (_, node) => [node, node, 1]).flat());
});

test("renamed letters are listed once", () => {
  assert.deepEqual(relate("a^2 + b = a", "x^2 + y = x").renaming, [["a", "x"], ["b", "y"]]);
});
