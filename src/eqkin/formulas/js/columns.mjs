// The one format of trees between Python and the engine: JSON with tables of strings, sizes of trees, and the columns of
// their nodes as one string, column after column, with one character per number.

export const CODE_OFFSET = 256; // characters from here on need no escapes in JSON
export const MAX_CODE = 50000; // characters below the surrogates

export class Column {
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

// Columns of numbers as a string, one after the other, one character each.
export function encodeColumns(columns) {
  let text = "";
  for (const { values, size } of columns)
    for (let at = 0; at < size; at += 8192)
      text += String.fromCharCode.apply(null, values.subarray(at, Math.min(at + 8192, size)).map((value) => value + CODE_OFFSET));
  return text;
}

// The columns of each tree of some columns over the nodes of all of them.
export function* iterTrees({ sizes, nodes }, columns) {
  const total = nodes.length / columns;
  let start = 0;
  for (const size of sizes) {
    yield Array.from({ length: columns }, (_, column) => Array.from({ length: size }, (_, node) => nodes.charCodeAt(column * total + start + node) - CODE_OFFSET));
    start += size;
  }
}
