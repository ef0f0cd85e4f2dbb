// What Python needs to know of labels, to make outlines of operator trees.

import { UNORDERED, words } from "./symbols.mjs";

// An outline shows all of these as an equation.
const OUTLINE_RELATIONS = words("≈ ∝ ~ ≡ ≤ < ≥ > ≠ → :=");

/**
 * List the labels of each kind.
 * @returns {Object<string, string[]>}
 */
export function listLabelKinds() {
  const kinds = {
    unordered: UNORDERED,
    relations: OUTLINE_RELATIONS,
    // The first operand with arguments or indices.
    applied: words("app idx"),
    // Left out, with everything below.
    details: words("from to any"),
    // Left out, their operands stay.
    wrappers: words("neg with abs norm transpose bar rows list row"),
    // Kinds of leaves that are no variables.
    plain: words("n o c text"),
    // Where the name of a variable ends.
    decorations: "_.′^",
  };
  return Object.fromEntries(Object.entries(kinds).map(([kind, labels]) => [kind, [...labels]]));
}
