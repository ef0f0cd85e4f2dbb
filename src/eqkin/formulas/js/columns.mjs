// The one format of trees between Python and the engine: JSON with tables of strings, the size of each tree, and columns
// over the nodes of all trees, tree after tree. Numbers in columns point into the tables.

// The columns of each tree.
export function* iterTrees(sizes, columns) {
  let start = 0;
  for (const size of sizes) {
    const end = start + size;
    yield columns.map((column) => column.slice(start, end));
    start = end;
  }
}
