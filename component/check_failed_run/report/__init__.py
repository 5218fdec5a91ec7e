"""The report: one object, and the formats it is written in."""
