// Presentation trees of a batch to operator trees.

import { canonicalise } from "./canonical.mjs";
import { findStatements, hashForms } from "./forms.mjs";
import { OperatorParser } from "./operators.mjs";
import { LEAF, MAX_DEPTH, branch, findAttributes, findMeaning, findType, forgetSymbols, leaf } from "./symbols.mjs";
import { MAX_WEAK_STATEMENTS } from "./weak_forms.mjs";

// Presentation trees in columns over the nodes of all of them, each tree in breadth-first order.
export class PresentationForest {
  constructor({ tags, attributes, texts, sizes, tag, attribute, text, n_children: count }) {
    forgetSymbols();
    const types = tags.map(findType), meanings = texts.map(findMeaning), known = attributes.map(findAttributes);
    this.sizes = sizes;
    this.tag = tag.map((number) => tags[number]);
    this.type = tag.map((number, node) => types[number] | (count[node] ? 0 : LEAF)); // bits, see `findType`
    this.attributes = attribute.map((number) => known[number]);
    this.meaning = text.map((number) => meanings[number]);
    this.count = count; // of children
    this.first = new Array(tag.length); // child
    let start = 0;
    for (const size of sizes) {
      for (let node = start, next = start + 1; node < start + size; next += count[node++]) this.first[node] = next;
      start += size;
    }
  }

  // A parser of one tree.
  openTree(start, size) {
    return new OperatorParser(this, start, start + size);
  }
}

export function measureDepth(node) {
  let depth = 0;
  for (let k = 0; k < node.children.length; k++) depth = Math.max(depth, measureDepth(node.children[k]));
  return depth + 1;
}

// A tree that is too deep, for us or for the engine's stack, becomes the list of its leaves.
export function parseTree(parser, canonical) {
  const { start, end } = parser;
  try {
    const node = canonical ? canonicalise(parser.parse()) : parser.parse();
    if (end - start > MAX_DEPTH / 2 && measureDepth(node) > MAX_DEPTH) throw new RangeError("too deep");
    return node;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    const leaves = [];
    for (let i = start; i < end; i++) if (!parser.count[i]) leaves.push(leaf("o", parser.meaning[i].text, i));
    parser.unparsed = 1;
    return branch("p:math", leaves, start);
  }
}

// Operator trees in the format of columns.mjs, each in depth-first order.
class OperatorWriter {
  constructor() {
    this.labels = [];
    this.sizes = [];
    this.unparsed = [];
    this.statements = []; // how many each tree has
    this.forms = []; // of all statements, see `hashForms`
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

export function parseBatch(batch, canonical) {
  const forest = new PresentationForest(batch), writer = new OperatorWriter();
  let start = 0;
  for (const size of forest.sizes) {
    const parser = forest.openTree(start, size);
    writer.addTree(parseTree(parser, canonical), parser);
    start += size;
  }
  return writer;
}
