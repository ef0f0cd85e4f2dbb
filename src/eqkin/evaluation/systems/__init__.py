"""Systems to compare: eqkin's networks and engine, baselines and peers, behind one small interface."""
