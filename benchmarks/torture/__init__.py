"""Campaigns that try to break eqkin; each returns rows of campaign, cases, failures and a note."""
