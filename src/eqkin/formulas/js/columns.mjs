// The one format of trees between Python and the engine: JSON with tables of strings, the size of each tree, and
// columns over the nodes of all trees, tree after tree. Numbers in columns point into the tables.

import { LEAF, NO_CHILDREN, findAttributes, findMeaning, findType } from "./symbols.mjs";

/**
 * Cut columns into those of each tree.
 * @param {number[]} sizes
 * @param {number[][]} columns
 * @returns {Generator<number[][]>}
 */
export function* iterTrees(sizes, columns) {
  let start = 0;
  for (const size of sizes) {
    const end = start + size;
    yield columns.map((column) => column.slice(start, end));
    start = end;
  }
}

export class PresentationNode {
  constructor(index, tag, type, attributes, meaning) {
    // Its place in the tree, breadth first.
    this.index = index;
    this.tag = tag;
    // Bits, see `findType`
    this.type = type;
    this.attributes = attributes;
    // What its text means.
    this.meaning = meaning;
    this.children = NO_CHILDREN;
    // The first visible leaf in it, and the one after the last, once they are known.
    this.start = 0;
    this.end = 0;
  }
}

/**
 * Read presentation trees, one at a time, so that the nodes of one are forgotten before the next: the nodes of each,
 * its root first.
 * @param {{tags: string[], attributes: string[], texts: string[], sizes: number[], tag: number[], attribute: number[],
 *   text: number[], n_children: number[]}} forest
 * @returns {Generator<PresentationNode[]>}
 */
export function* readPresentationTrees({ tags, attributes, texts, sizes, tag, attribute, text, n_children: counts }) {
  const types = tags.map(findType), meanings = texts.map(findMeaning), known = attributes.map(findAttributes);
  let start = 0;
  for (const size of sizes) {
    const nodes = [];
    for (let at = start; at < start + size; at++) {
      const type = types[tag[at]] | (counts[at] ? 0 : LEAF);
      nodes.push(new PresentationNode(at - start, tags[tag[at]], type, known[attribute[at]], meanings[text[at]]));
    }
    // Breadth first: the children of a node come after those of the nodes before it.
    let next = 1;
    for (const node of nodes) {
      const count = counts[start++];
      if (count) node.children = nodes.slice(next, next += count);
    }
    yield nodes;
  }
}
