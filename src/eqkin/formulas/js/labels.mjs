// What Python needs to know of labels, to make outlines of operator trees.

import { UNORDERED, words } from "./symbols.mjs";

// An outline shows all of these as an equation.
const OUTLINE_RELATIONS = words("≈ ∝ ~ ≡ ≤ < ≥ > ≠ → :=");

// The labels of each kind, as lists.
export function listLabelKinds() {
  const kinds = {
    unordered: UNORDERED,
    relations: OUTLINE_RELATIONS,
    applied: words("app idx"), // the first operand with arguments or indices
    details: words("from to any"), // left out, with everything below
    wrappers: words("neg with abs norm transpose bar rows list row"), // left out, their operands stay
    plain: words("n o c text"), // kinds of leaves that are no variables
    decorations: "_.′^", // where the name of a variable ends
  };
  return Object.fromEntries(Object.entries(kinds).map(([kind, labels]) => [kind, [...labels]]));
}
