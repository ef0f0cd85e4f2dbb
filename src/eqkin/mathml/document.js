// One document inside the embedded engine: the macros its formulas use, and a meaning for commands that nobody defines.

const NAMES = /\\(?:[a-zA-Z@]+|[^a-zA-Z@])/g;
const MOST_USES = 50; // of an unknown command, looked at to guess its arguments
const bases = new Map(); // what holds before a document's own definitions, by the names of its packages

let definitions = new Map(); // all of the document's, by name
let texts = []; // its formulas
let uses = null; // formulas and macro bodies as one text, once that is needed
let settled = new Set(); // commands nobody defines that were given a meaning
let shown = []; // unknown commands met in the current formula

function baseOf(packages) {
  const key = packages.join();
  let found = bases.get(key);
  if (!found) {
    found = Object.assign({}, TESTS);
    for (const name of packages) Object.assign(found, prelude[name]);
    if (bases.size > 200) bases.clear();
    bases.set(key, found);
  }
  return found;
}

// Takes a document's packages, definitions and formulas, and converts the first of these.
function openDocument(json) {
  const { packages, definitions: given, formulas, first } = JSON.parse(json);
  base = baseOf(packages);
  macros = {};
  definitions = new Map(given.map((definition) => [definition.name, definition]));
  texts = formulas;
  uses = null;
  settled = new Set();
  settle(use(formulas.slice()));
  return convertAll(formulas.slice(0, first), true);
}

// Makes the macros these texts use, directly or through others; returns the commands that nobody defines.
function use(pending) {
  const seen = new Set(), missing = [];
  while (pending.length) {
    for (const name of pending.pop().match(NAMES) ?? []) {
      if (seen.has(name)) continue;
      seen.add(name);
      const definition = definitions.get(name);
      if (definition !== undefined) {
        Object.assign(macros, table([definition]));
        pending.push(definition.body, definition.alias);
        for (const kind of definition.args) if (kind[0] === "o" && kind[1]) pending.push(kind[1]);
      } else if (macros[name] === undefined && base[name] === undefined && !isDefined(name)) missing.push(name);
    }
  }
  return missing;
}

// Programming in TeX cannot be shown by name: what needs it fails.
const PRIMITIVES = new Set(
  ("if ifnum ifx ifdim ifcat ifodd ifcase ifdefined ifcsname else fi or begingroup endgroup lccode uccode catcode csname endcsname " +
    "expandafter futurelet afterassignment aftergroup currentgrouptype halign valign advance multiply divide count dimen toks the " +
    "romannumeral meaning numexpr dimexpr @ifnextchar @ifstar write immediate special").split(" ").map((name) => "\\" + name),
);

// A command that some package provides is taken from there; one that nobody provides becomes a named symbol or operator.
function settle(missing) {
  while (missing.length) {
    const name = missing.pop();
    if (settled.has(name) || PRIMITIVES.has(name) || limits.diagram_commands.includes(name)) continue;
    settled.add(name);
    const offered = providers.get(name), found = arity(name);
    // the same name with another number of arguments is another command
    if (offered && [found, 0].includes(offered.args.filter(([kind]) => kind === "m").length)) {
      base = Object.assign({}, base, table([offered], BASE));
      missing.push(...use([offered.body]));
    } else macros[name] = standIn(name, found);
  }
}

// How many braced arguments a command seems to take: the commonest number of {...} groups right after it.
function arity(name) {
  uses ??= [...texts, ...Array.from(definitions.values(), (definition) => definition.body)].join("\n");
  const counts = new Array(10).fill(0);
  for (let at = uses.indexOf(name), found = 0; at >= 0 && found < MOST_USES; at = uses.indexOf(name, at + 1)) {
    let end = at + name.length, groups = 0;
    if (/[a-zA-Z]$/.test(name) && /[a-zA-Z]/.test(uses[end] ?? "")) continue;
    for (let next; groups < 9 && uses[end] === "{" && (next = groupEnd(uses, end)) > 0; groups++) {
      end = next;
      while (/\s/.test(uses[next] ?? "")) next++;
      if (uses[next] === "{") end = next;
    }
    counts[groups]++;
    found++;
  }
  return counts.indexOf(Math.max(...counts));
}

function groupEnd(text, at) {
  const stop = Math.min(text.length, at + limits.latex_chars);
  for (let depth = 0; at < stop; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === "{") depth++;
    else if (text[at] === "}" && --depth === 0) return at + 1;
  }
  return -1;
}

function standIn(command, count) {
  const name = command.replace(/[^\p{L}\p{N}]/gu, "") || "?";
  const values = Array.from({ length: count }, (_, i) => "{#" + (i + 1) + "}").join("");
  const symbol = (count ? "\\operatorname{" : "\\mathrm{") + name + "}";
  const args = new Array(count).fill(["m"]);
  const expand = macro({ name: command, args, body: "\\TextOrMath{" + name + " }{" + symbol + "}" + values, prefix: "" }, 0);
  return (context) => {
    if (!shown.includes(command)) shown.push(command);
    return expand(context);
  };
}

// The command an error says is undefined, if it can still be given a meaning.
function unsettled(error) {
  const match = /(?:Undefined|Unrecognized(?: infix)?) control sequence: (\\(?:[A-Za-z@]+|.))/su.exec(error.message ?? "");
  const name = match?.[1];
  return name && !settled.has(name) && !PRIMITIVES.has(name) && !limits.diagram_commands.includes(name) ? name : null;
}
