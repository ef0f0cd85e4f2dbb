// The border: what Python calls. Each function takes JSON and returns JSON; columns.mjs describes its trees.

import { parseBatch } from "./batches.mjs";
import { openDocument } from "./document.mjs";
import { explainHits } from "./explain.mjs";
import { listLabelKinds } from "./labels.mjs";
import { prepare } from "./macros.mjs";
import { matchPattern } from "./matching.mjs";
import { convertFormulas } from "./trees.mjs";

// Prepares the engine.
export function start(json) {
  prepare(JSON.parse(json));
  return "";
}

// Reads formulas, LaTeX or presentation trees, into presentation trees and operator trees. A `document` is opened
// first: its macros hold for all formulas until another one is opened.
export function read(json) {
  const { document, formulas, displayMode, trees: given, wantsOperators, canonical } = JSON.parse(json);
  if (document) openDocument(document);
  const answer = given ? {} : convertFormulas(formulas, displayMode), trees = given ?? answer.trees;
  if (wantsOperators) answer.operators = parseBatch(trees, canonical);
  return JSON.stringify(answer);
}

// Returns which operator trees match a pattern.
export function match(json) {
  const { pattern, operators, limit } = JSON.parse(json);
  return JSON.stringify(matchPattern(pattern, operators, limit));
}

// Explains how hits are related to a query.
export function explain(json) {
  const { query, hits, operators, forms } = JSON.parse(json);
  return JSON.stringify(explainHits(query, hits, operators, forms));
}

// Returns which labels are of which kind.
export function describeLabels() {
  return JSON.stringify(listLabelKinds());
}
