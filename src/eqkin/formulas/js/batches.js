// Batches of trees between Python and the engine.
//
// A batch arrives as JSON: string tables, sizes of trees, and four columns of node numbers as one string with one
// character per number. The answer is a buffer: see `AnswerWriter.toBuffer`.

const CODE_OFFSET = 256; // characters from here on need no escapes in JSON

const knownAttributes = new Map();

class NodeAttributes {
  constructor(lines) {
    for (const line of lines.split("\n")) {
      const at = line.indexOf("=");
      if (at > 0) this[line.slice(0, at)] = line.slice(at + 1);
    }
    this.style = STYLES.get(this.mathvariant) ?? "";
    this.isWord = WORD_VARIANTS.has(this.mathvariant);
    this.isFence = this.fence === "true";
    this.isBare = /^0(px|pt|em)?$/.test(this.linethickness ?? ""); // a fraction without its line
    this.isWide = parseFloat(this.width ?? "0") >= MIN_CONDITION_SPACE_EM || this.linebreak === "newline";
  }
}

function findAttributes(lines) {
  let attributes = knownAttributes.get(lines);
  if (attributes === undefined) knownAttributes.set(lines, attributes = new NodeAttributes(lines));
  return attributes;
}

// Presentation trees in columns over the nodes of all of them, each tree in breadth-first order.
class PresentationForest {
  constructor({ tags, attributes, texts, sizes, nodes, offset = CODE_OFFSET }) {
    forgetSymbols();
    const total = nodes.length / 4;
    this.sizes = sizes;
    this.nodes = nodes;
    this.offset = offset; // of the characters
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
    const { nodes, offset } = this, { tags, types, meanings, attributes } = this.tables, total = this.tag.length;
    for (let i = start, next = start + 1; i < start + size; i++) {
      const tag = nodes.charCodeAt(i) - offset, text = nodes.charCodeAt(2 * total + i) - offset, count = nodes.charCodeAt(3 * total + i) - offset;
      this.tag[i] = tags[tag];
      this.type[i] = types[tag] | (count ? 0 : LEAF);
      this.attributes[i] = attributes[nodes.charCodeAt(total + i) - offset];
      this.meaning[i] = meanings[text];
      this.count[i] = count;
      this.first[i] = next;
      next += count;
    }
    return new OperatorParser(this, start, start + size);
  }
}

function measureDepth(node) {
  let depth = 0;
  for (let k = 0; k < node.children.length; k++) depth = Math.max(depth, measureDepth(node.children[k]));
  return depth + 1;
}

// A tree that is too deep, for us or for the engine's stack, becomes the list of its leaves.
function parseTree(parser, canonical) {
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

class Column {
  constructor(ArrayType) {
    this.values = new ArrayType(1 << 7);
    this.size = 0;
  }
  push(value) {
    if (this.size === this.values.length) {
      const larger = new this.values.constructor(2 * this.size);
      larger.set(this.values);
      this.values = larger;
    }
    this.values[this.size++] = value;
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

  // For few trees, which are a part of another answer.
  toJSON() {
    const { labels, ...columns } = this;
    return { labels, ...Object.fromEntries(Object.entries(columns).map(([name, { values, size }]) => [name, Array.from(values.subarray(0, size))])) };
  }

  // Four counts and all other numbers of 32 bits, columns of 16 bits, and the labels as JSON.
  toBuffer() {
    const labels = JSON.stringify(this.labels), read = ({ values, size }) => values.subarray(0, size);
    const parts = [
      Uint32Array.of(this.label.size, this.sizes.size, this.forms.size, labels.length), ...[this.sizes, this.unparsed, this.statements, this.forms].map(read),
      ...[this.label, this.depth].map(read), Uint16Array.from({ length: labels.length }, (_, k) => labels.charCodeAt(k)),
    ];
    const buffer = new ArrayBuffer(parts.reduce((bytes, part) => bytes + part.byteLength, 0));
    let at = 0;
    for (const part of parts) {
      new part.constructor(buffer, at, part.length).set(part);
      at += part.byteLength;
    }
    return buffer;
  }
}

function parseBatch(batch) {
  const forest = new PresentationForest(batch), writer = new AnswerWriter();
  let start = 0;
  for (const size of forest.sizes) {
    const parser = forest.openTree(start, size);
    writer.addTree(parseTree(parser, batch.canonical), parser);
    start += size;
  }
  return writer;
}

function parseOperators(json) {
  return parseBatch(JSON.parse(json)).toBuffer();
}
