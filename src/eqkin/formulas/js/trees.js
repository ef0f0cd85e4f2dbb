// Formulas to trees inside the embedded engine: KaTeX parses and builds its MathML nodes, which are walked directly
// instead of being printed and read again.

const DROPPED_ATTRIBUTES = new Set(["href", "class", "style", "xmlns", "display", "alttext", "id", "encoding"]);
const ERROR_COLOUR = "#e9c1b7"; // KaTeX shows refused commands in this colour

// meaningless in a formula: controls, by which stored strings are separated, and what XML does not allow
const CONTROLS = /[\u0000-\u001f\u007f\ufffe\uffff]/, ALL_CONTROLS = new RegExp(CONTROLS, "g");

class Symbols {
  constructor() {
    this.index = new Map();
    this.list = [];
  }
  id(value) {
    let id = this.index.get(value);
    if (id === undefined) {
      id = this.list.length;
      if (id > MAX_SYMBOLS) throw new Error("eqkin:limit too many different symbols");
      this.index.set(value, id);
      this.list.push(value.toWellFormed());
    }
    return id;
  }
}

function getAttributes(node) {
  let out = "", names = null;
  for (const name in node.attributes) {
    if (DROPPED_ATTRIBUTES.has(name) || name.startsWith("data-")) continue;
    const value = String(node.attributes[name]);
    if (value === ERROR_COLOUR) throw new Error("eqkin:refused command");
    if (out) (names ??= [out]).push(name + "=" + value);
    else out = name + "=" + value;
  }
  return names ? names.sort().join("\n") : out;
}

const TOKENS = new Set(["mtext", "mi", "mo", "mn", "ms"]);
const ROWS = new Set(["mrow", "mtd", "mstyle", "mpadded", "mphantom", "menclose", "msqrt", "merror", "math"]);

function pushChildren(node, into, type = node.type) {
  // fragments are not nodes; adjacent texts become one; small spaces in a row mean nothing
  let text = "";
  for (const child of node.children) {
    if (child.type !== undefined) into.push(child);
    else if (child.text !== undefined && child.children === undefined) text += child.text;
    else if (child.width !== undefined) {
      if (child.character) {
        if (TOKENS.has(type)) text += child.character;
        else if (!ROWS.has(type)) into.push({ type: "mtext", attributes: {}, children: [{ text: child.character }] });
      } else into.push({ type: "mspace", attributes: { width: child.width.toFixed(4).replace(/\.?0+$/, "") + "em" }, children: [] });
    } else text += pushChildren(child, into, type);
  }
  return text;
}

// Node columns of a batch of trees, sent to Python as one string with one character per number: much cheaper than JSON.
const MAX_SYMBOLS = 50000; // characters below the surrogates
class Columns {
  constructor() {
    this.size = 0;
    this.columns = [0, 1, 2, 3].map(() => new Uint16Array(512));
  }
  push(tag, attribute, text, count) {
    const at = this.size++;
    if (at === this.columns[0].length) this.columns = this.columns.map((old) => {
      const larger = new Uint16Array(2 * at);
      larger.set(old);
      return larger;
    });
    const [tags, attributes, texts, counts] = this.columns;
    tags[at] = tag + 1;
    attributes[at] = attribute + 1;
    texts[at] = text + 1;
    counts[at] = count + 1;
  }
  toString() {
    let out = "";
    for (const column of this.columns)
      for (let at = 0; at < this.size; at += 8192)
        out += String.fromCharCode.apply(null, column.subarray(at, Math.min(at + 8192, this.size)));
    return out;
  }
}

function flatten(root, tables, columns) {
  const start = columns.size;
  let level = [root];
  for (let depth = 1; level.length; depth++) {
    if (depth > limits.tree_depth) throw new Error("eqkin:limit tree deeper than " + limits.tree_depth);
    if (columns.size - start + level.length > limits.tree_nodes) throw new Error("eqkin:limit tree larger than " + limits.tree_nodes + " nodes");
    const next = [];
    for (const node of level) {
      const before = next.length;
      let words = pushChildren(node, next);
      const count = next.length - before;
      if (count) words = ""; // mixed content does not occur in presentation MathML
      if (CONTROLS.test(words)) words = words.replace(ALL_CONTROLS, "");
      if (words.length > limits.leaf_chars) throw new Error("eqkin:limit text longer than " + limits.leaf_chars);
      const tag = count && TOKENS.has(node.type) ? "mrow" : node.type; // KaTeX puts whole expressions into <mo>
      columns.push(tables.tags.id(tag), tables.attributes.id(getAttributes(node)), tables.texts.id(words), count);
    }
    level = next;
  }
  return columns.size - start;
}

function buildTree(latex, displayMode) {
  const dom = katex.__renderToDomTree(latex, {
    displayMode, output: "mathml", throwOnError: true, strict: "ignore", trust: false,
    macros: {}, // definitions in a formula end with it; those of the document are found by `install`
    maxExpand: limits.macro_expansions, maxSize: limits.rule_size_em, errorColor: ERROR_COLOUR,
  });
  let node = dom;
  while (node.type !== "semantics") node = node.children.find((c) => c.children && c.type !== "annotation");
  return node.children[0];
}

function checkDepth(latex) {
  if (latex.length > limits.latex_chars) throw new Error("eqkin:limit formula longer than " + limits.latex_chars + " characters");
  for (let i = 0, depth = 0; i < latex.length; i++) {
    const c = latex.charCodeAt(i);
    if (c === 92) i++;
    else if (c === 123 && ++depth > limits.latex_depth) throw new Error("eqkin:limit braces deeper than " + limits.latex_depth);
    else if (c === 125) depth--;
  }
}

function convert(json) {
  const { formulas, displayMode } = JSON.parse(json);
  return convertAll(formulas, displayMode);
}

// Converts formulas, at least one, until the time of a batch is over; `parse` makes operator trees.
function convertAll(formulas, displayMode, parse = null) {
  const tables = { tags: new Symbols(), attributes: new Symbols(), texts: new Symbols() };
  const columns = new Columns();
  const outcomes = [], stop = Date.now() + 1000 * limits.batch_seconds;
  for (const latex of formulas) {
    // what is left comes in the next call: one formula must not cost another its time or its symbols
    if (outcomes.length && (Date.now() > stop || tables.texts.list.length > MAX_SYMBOLS - limits.tree_nodes)) break;
    outcomes.push(convertOne(latex, displayMode, tables, columns));
  }
  const strings = { tags: tables.tags.list, attributes: tables.attributes.list, texts: tables.texts.list };
  const parsed = parse !== null && columns.size ? parse({ ...strings, sizes: outcomes.map((outcome) => outcome.size ?? outcome).filter(Number.isInteger), nodes: columns.toString(), offset: 1, canonical: true }) : undefined;
  return JSON.stringify({ ...strings, outcomes, parsed }) + "\n" + columns.toString();
}

// Returns the number of nodes, with the undefined commands if there are any, or an error.
function convertOne(latex, displayMode, tables, columns) {
  const before = columns.size;
  formulaEnd = Date.now() + 1000 * limits.formula_seconds;
  for (;;) {
    shown = new Set();
    try {
      checkDepth(latex);
      const size = flatten(buildTree(latex, displayMode), tables, columns);
      return shown.size ? { size, unknown: [...shown] } : size;
    } catch (error) {
      columns.size = before;
      const name = findUndefined(error); // one that only appears when macros are expanded
      if (name) settle([name]);
      else if (error instanceof RangeError) return { error: "eqkin:limit nesting too deep", position: -1 };
      else return { error: (error.rawMessage ?? error.message).toWellFormed(), position: error.position ?? -1 };
    }
  }
}
