// Presentation trees of a batch to operator trees.

import { canonicalise } from "./canonical.mjs";
import { CODE_OFFSET, Column, MAX_CODE, encodeColumns } from "./columns.mjs";
import { findStatements, hashForms } from "./forms.mjs";
import { OperatorParser } from "./operators.mjs";
import { LEAF, MAX_DEPTH, branch, findAttributes, findMeaning, findType, forgetSymbols, leaf } from "./symbols.mjs";
import { MAX_WEAK_STATEMENTS } from "./weak_forms.mjs";

// Presentation trees in columns over the nodes of all of them, each tree in breadth-first order.
export class PresentationForest {
  constructor({ tags, attributes, texts, sizes, nodes }) {
    forgetSymbols();
    const total = nodes.length / 4;
    this.sizes = sizes;
    this.nodes = nodes;
    this.tables = { tags, types: tags.map(findType), meanings: texts.map(findMeaning), attributes: attributes.map(findAttributes) };
    this.tag = new Array(total);
    this.meaning = new Array(total);
    this.attributes = new Array(total);
    this.type = new Uint8Array(total); // bits, see `findType`
    this.first = new Int32Array(total); // child
    this.count = new Int32Array(total); // of children
  }

  // Fill the columns of one tree and return a parser of it; the engine compiles what is called often, not long loops.
  openTree(start, size) {
    const { nodes } = this, { tags, types, meanings, attributes } = this.tables, total = this.tag.length;
    for (let i = start, next = start + 1; i < start + size; i++) {
      const tag = nodes.charCodeAt(i) - CODE_OFFSET, text = nodes.charCodeAt(2 * total + i) - CODE_OFFSET, count = nodes.charCodeAt(3 * total + i) - CODE_OFFSET;
      this.tag[i] = tags[tag];
      this.type[i] = types[tag] | (count ? 0 : LEAF);
      this.attributes[i] = attributes[nodes.charCodeAt(total + i) - CODE_OFFSET];
      this.meaning[i] = meanings[text];
      this.count[i] = count;
      this.first[i] = next;
      next += count;
    }
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

// The answer to a batch. Trees are columns in depth-first order: label, depth.
class AnswerWriter {
  constructor() {
    this.labels = [];
    [this.sizes, this.unparsed, this.statements, this.forms] = [0, 1, 2, 3].map(() => new Column(Uint32Array));
    [this.label, this.depth] = [0, 1].map(() => new Column(Uint16Array));
  }

  addTree(root, parser) {
    const before = this.label.size, statements = findStatements(root);
    this.addNode(root, 0);
    this.sizes.push(this.label.size - before);
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

  // Columns of small numbers become one string, as in a batch.
  toJSON() {
    if (this.labels.length > MAX_CODE) throw new Error("eqkin:limit too many different labels");
    const [sizes, unparsed, statements, forms] = [this.sizes, this.unparsed, this.statements, this.forms].map(({ values, size }) => Array.from(values.subarray(0, size)));
    return { labels: this.labels, sizes, unparsed, statements, forms, nodes: encodeColumns([this.label, this.depth]) };
  }
}

export function parseBatch(batch, canonical) {
  const forest = new PresentationForest(batch), writer = new AnswerWriter();
  let start = 0;
  for (const size of forest.sizes) {
    const parser = forest.openTree(start, size);
    writer.addTree(parseTree(parser, canonical), parser);
    start += size;
  }
  return writer;
}
