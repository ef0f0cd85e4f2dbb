// How tables are written, and how trees arrive.

import assert from "node:assert/strict";
import { test } from "node:test";

import { iterTrees, readPresentationTrees } from "../../../src/eqkin/formulas/js/columns.mjs";
import { readPairs, readRows, words } from "../../../src/eqkin/formulas/js/symbols.mjs";

test("words, pairs and rows may stand on several lines", () => {
  assert.deepEqual([...words("\n  a b\n  c\n")], ["a", "b", "c"]);
  assert.deepEqual([...readPairs("\n  a b  c d\n  e f\n")], [["a", "b"], ["c", "d"], ["e", "f"]]);
  assert.deepEqual([...readRows("\n  a  b  c\n  d  e\n")], [["a", ["b", "c"]], ["d", ["e"]]]);
});

test("columns are cut into trees", () => {
  assert.deepEqual([...iterTrees([1, 2], [[1, 2, 3], [4, 5, 6]])], [[[1], [4]], [[2, 3], [5, 6]]]);
});

test("nodes of presentation trees come breadth first", () => {
  const trees = readPresentationTrees({
    tags: ["math", "mrow", "mi"], attributes: ["", "mathvariant=bold"], texts: ["", "x", "y"], sizes: [4, 1],
    tag: [0, 1, 2, 2, 2], attribute: [0, 0, 0, 1, 0], text: [0, 0, 1, 2, 1], n_children: [2, 1, 0, 0, 0],
  });
  const show = ({ tag, meaning, children }) => [tag, meaning.text, ...children.map(show)];
  const [first, second] = [...trees];
  assert.deepEqual(show(first[0]), ["math", "", ["mrow", "", ["mi", "y"]], ["mi", "x"]]);
  assert.equal(first[3].attributes.style, "bold");
  assert.deepEqual(show(second[0]), ["mi", "x"]);
});
