// Presentation trees of a batch to operator trees.

import { canonicalise } from "./canonical.mjs";
import { readPresentationTrees } from "./columns.mjs";
import { findStatements, hashForms } from "./forms.mjs";
import { OperatorParser } from "./operators.mjs";
import { MAX_DEPTH, branch, forgetSymbols, leaf } from "./symbols.mjs";
import { MAX_WEAK_STATEMENTS } from "./weak_forms.mjs";

export function measureDepth(node) {
  let depth = 0;
  for (let k = 0; k < node.children.length; k++) depth = Math.max(depth, measureDepth(node.children[k]));
  return depth + 1;
}

/**
 * Parse one tree. If it is too deep, for us or for the engine's stack, it becomes the list of its leaves.
 * @param {OperatorParser} parser
 * @param {boolean} canonical whether equivalent notations get the same tree
 * @returns {OperatorNode}
 */
export function parseTree(parser, canonical) {
  const { nodes, root } = parser;
  try {
    const node = canonical ? canonicalise(parser.parse()) : parser.parse();
    if (nodes.length > MAX_DEPTH / 2 && measureDepth(node) > MAX_DEPTH) throw new RangeError("too deep");
    return node;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    const leaves = nodes.filter((node) => !node.children.length);
    parser.unparsed = 1;
    return branch("p:math", leaves.map((node) => leaf("o", node.meaning.text, node)), root);
  }
}

// Operator trees in the format of columns.mjs, each in depth-first order.
class OperatorWriter {
  constructor() {
    this.labels = [];
    this.sizes = [];
    this.unparsed = [];
    // How many each tree has.
    this.statements = [];
    // Hashes of all statements, see `hashForms`.
    this.forms = [];
    this.label = [];
    this.depth = [];
  }

  addTree(root, parser) {
    const before = this.label.length, statements = findStatements(root);
    this.addNode(root, 0);
    this.sizes.push(this.label.length - before);
    this.unparsed.push(parser.unparsed);
    this.statements.push(statements.length);
    for (let k = 0; k < statements.length; k++) hashForms(statements[k], k < MAX_WEAK_STATEMENTS, this.forms);
  }

  addNode(node, depth) {
    const { kind, children } = node;
    if (kind.batch !== this) {
      kind.batch = this;
      kind.number = this.labels.push(kind.name) - 1;
    }
    this.label.push(kind.number);
    this.depth.push(depth);
    for (let k = 0; k < children.length; k++) this.addNode(children[k], depth + 1);
  }
}

/**
 * Parse the trees of a batch.
 * @param {object} batch presentation trees in the format of columns.mjs
 * @param {boolean} canonical whether equivalent notations get the same tree
 * @returns {OperatorWriter}
 */
export function parseBatch(batch, canonical) {
  forgetSymbols();
  const writer = new OperatorWriter();
  for (const nodes of readPresentationTrees(batch)) {
    const parser = new OperatorParser(nodes);
    writer.addTree(parseTree(parser, canonical), parser);
  }
  return writer;
}
