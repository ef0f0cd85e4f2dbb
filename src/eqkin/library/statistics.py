"""Counts of what is in a library (`eqkin stats`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson

from eqkin.library.database import HAS_TREE
from eqkin.library.files import LibraryFiles

# More are counted, but not listed.
_MAX_UNKNOWN_COMMANDS = 50


def compute_statistics(library: LibraryFiles) -> dict[str, Any]:
    """Count papers, displays by outcome, rows, inline formulas, failures, fields, kinds, languages, nodes and bytes."""
    execute = library.connection.execute

    def count(query: str) -> int:
        return int(execute(query).fetchone()[0])

    def count_groups(query: str) -> dict[str, int]:
        return dict(sorted(map(tuple, execute(query)), key=lambda pair: (-pair[1], pair[0])))

    library.check_rows("papers")
    library.check_rows("equations")
    with library.translate_errors():
        displays = "whole IS NULL AND NOT inline"
        status = count_groups(f"SELECT status, count(*) FROM equations WHERE {displays} GROUP BY 1")
        fields: Counter[str] = Counter()
        for (value,) in execute("SELECT fields FROM papers WHERE failure = ''"):
            names = orjson.loads(value)
            fields[parse_subject_area(names[0]) if names else "(none)"] += 1
        commands: Counter[str] = Counter()
        for (names,) in execute("SELECT unknown FROM equations WHERE unknown != ''"):
            commands.update(names.split(" "))
        sizes = [forest.sizes for _, forest, _ in library.iter_trees(library.list_tree_keys())]
        nodes = np.concatenate(sizes) if sizes else np.zeros(0)
        return {
            "library": str(library.folder),
            "papers": count("SELECT count(*) FROM papers WHERE failure = ''"),
            "papers_with_equations": count("SELECT count(DISTINCT paper) FROM trees"),
            "papers_failed": count_groups("SELECT failure, count(*) FROM papers WHERE failure != '' GROUP BY 1"),
            "sections": count("SELECT count(*) FROM sections"),
            "citations": count("SELECT total(json_array_length(cites)) FROM papers"),
            "equations": {
                "found": sum(n for name, n in status.items() if name != "diagram"),
                "converted": status.get("converted", 0) + status.get("degraded", 0),
                "degraded": status.get("degraded", 0),
                "repaired": count(f"SELECT count(*) FROM equations e WHERE {displays} AND repaired AND {HAS_TREE}"),
                "diagrams": status.get("diagram", 0),
                "rows": count(f"SELECT count(*) FROM equations e WHERE whole IS NOT NULL AND {HAS_TREE}"),
                "inline": count(f"SELECT count(*) FROM equations e WHERE inline AND {HAS_TREE}"),
                "failed": count_groups(
                    f"SELECT reason, count(*) FROM equations WHERE {displays} AND status = 'failed' GROUP BY 1"
                ),
            },
            "unknown_commands": dict(commands.most_common(_MAX_UNKNOWN_COMMANDS)),
            "fields": dict(fields.most_common()),
            "kinds": count_groups("SELECT kind, count(*) FROM papers WHERE failure = '' GROUP BY 1"),
            "languages": count_groups("SELECT lang, count(*) FROM papers WHERE failure = '' AND lang != '' GROUP BY 1"),
            "trees": {
                "mean_nodes": float(nodes.mean()) if len(nodes) else 0.0,
                "median_nodes": float(np.median(nodes)) if len(nodes) else 0.0,
            },
            "bytes": sum(path.stat().st_size for path in library.folder.rglob("*") if path.is_file()),
            "converter": asdict(library.converter),
        }


def parse_subject_area(field: str) -> str:
    """Return the subject area of an arXiv category (`math.AG` -> `math`); other fields are returned unchanged."""
    return field.split(".", 1)[0]
