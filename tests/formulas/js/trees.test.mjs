// Presentation trees, macros, and what is wrong with a formula.

import assert from "node:assert/strict";
import { test } from "node:test";

import { read } from "./engine.mjs";

test("nodes stand in breadth-first order and say how many children they have", () => {
  const { trees } = read(["x^2"]);
  assert.deepEqual(trees.sizes, [4]);
  assert.deepEqual(trees.tag.map((number) => trees.tags[number]), ["mrow", "msup", "mi", "mn"]);
  assert.deepEqual(trees.text.map((number) => trees.texts[number]), ["", "", "x", "2"]);
  assert.deepEqual(trees.n_children, [1, 2, 0, 0]);
});

test("the failure of one formula does not cost the results of others", () => {
  const { outcomes, trees } = read(["x", "\\frac{a", "y"]);
  assert.deepEqual([typeof outcomes[0], typeof outcomes[1].error, typeof outcomes[2]], ["number", "string", "number"]);
  assert.equal(trees.sizes.length, 2);
});

test("macros of a document have arguments", () => {
  const half = { name: "\\half", args: [["m"]], body: "\\frac{#1}{2}", prefix: "", alias: "", weak: false };
  const { trees, outcomes } = read(["\\half{x}", "\\frac{x}{2}"], { definitions: [half] });
  assert.deepEqual(outcomes, [trees.sizes[0], trees.sizes[0]]);
});

test("an undefined command is shown by name, with as many arguments as most of its uses have", () => {
  const { outcomes, operators } = read(["\\foo{a}{b}", "\\foo{c}{d} + 1"]);
  assert.deepEqual(outcomes.map((outcome) => outcome.unknown), [["\\foo"], ["\\foo"]]);
  assert.ok(operators.labels.some((label) => label.includes("foo")));
});

test("a macro that expands without end is stopped", () => {
  const endless = { name: "\\a", args: [], body: "\\a\\a", prefix: "", alias: "", weak: false };
  const { outcomes } = read(["\\a", "x"], { definitions: [endless] });
  assert.match(outcomes[0].error, /expan|tokens/);
  assert.equal(typeof outcomes[1], "number");
});
