// The engine as Python starts it, but without the macros of LaTeX's packages.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const SCRIPTS = new URL("../../../src/eqkin/formulas/", import.meta.url);
globalThis.katex = createRequire(import.meta.url)(new URL("katex.min.js", SCRIPTS).pathname);
const engine = await import(new URL("js/engine.mjs", SCRIPTS));

const LIMITS = {
  batch_seconds: 60, formula_seconds: 60, diagram_commands: [], latex_chars: 20_000, latex_depth: 200, leaf_chars: 500,
  macro_expansions: 1_000, macro_tokens: 100_000, macros_per_paper: 1_000, rule_size_em: 50, tree_depth: 150, tree_nodes: 4_000,
};
engine.start(JSON.stringify({ limits: LIMITS, packages: {}, providers: {} }));

// Reads a JSON file that Python's tests use, too.
export function loadCases(name) {
  return JSON.parse(readFileSync(new URL(`../${name}.json`, import.meta.url), "utf8"));
}

// Reads formulas of LaTeX.
export function read(formulas, { definitions = [], canonical = true } = {}) {
  const document = { packages: [], definitions, formulas };
  return JSON.parse(engine.read(JSON.stringify({ document, formulas, displayMode: true, wantsOperators: true, canonical })));
}

// Reads formulas and returns their operator trees as nested lists.
export function parse(formulas, options) {
  const { outcomes, operators } = read(formulas, options), failed = outcomes.findIndex((outcome) => outcome.error);
  if (failed >= 0) throw new Error(`${formulas[failed]}: ${outcomes[failed].error}`);
  let start = 0;
  return operators.sizes.map((size) => nest(operators, start, (start += size)));
}

function nest({ labels, label, depth }, start, end) {
  const open = [];
  for (let node = start; node < end; node++) {
    const tree = [labels[label[node]]];
    if (depth[node]) open[depth[node] - 1].push(tree);
    open[depth[node]] = tree;
  }
  const simplify = ([name, ...children]) => (children.length ? [name, ...children.map(simplify)] : name);
  return simplify(open[0]);
}

export const match = (pattern, operators, limit = 3_000) => JSON.parse(engine.match(JSON.stringify({ pattern, operators, limit })));
export const explain = (query, hits, forms) => JSON.parse(engine.explain(JSON.stringify({ query, hits, forms })));
export const describeLabels = () => JSON.parse(engine.describeLabels());
