"""Style of the page: one column on a phone, as many plots side by side as there is room for elsewhere."""

from __future__ import annotations

from voxload.benchmark.report.colours import declarations

_RULES = """
*, *::before, *::after { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 88rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.2rem 0 0.6rem; }
h3 { font-size: 1.02rem; margin: 1.2rem 0 0.4rem; }
figure h3 { margin-top: 0; }
p { margin: 0.3rem 0 0.8rem; max-width: 48rem; }
.quiet { color: var(--muted); font-size: 0.9rem; }
.items { list-style: none; margin: 0.6rem 0; padding: 0; }
.labels { list-style: none; margin: 0.6rem 0; padding: 0; }
.labels li { margin: 0.4rem 0; padding: 0.45rem 0.7rem; background: var(--panel);
  border-left: 4px solid var(--warning); }
.labels b { color: var(--warning); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0; }
th, td { text-align: right; padding: 0.22rem 0.7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; font-weight: normal; }
thead th { font-weight: 600; }
td small { display: block; color: var(--muted); }
.facts th { white-space: nowrap; color: var(--muted); }
.facts td { text-align: left; overflow-wrap: anywhere; }
.side { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 1rem 2.4rem; }
.side > * { max-width: 100%; min-width: 0; }
summary { cursor: pointer; margin-top: 1.6rem; }
summary h2 { display: inline; }
.plots { columns: 24rem 3; column-gap: 1rem; }
figure { margin: 0 0 1rem; break-inside: avoid; padding: 0.8rem; background: var(--panel);
  border-radius: 6px; min-width: 0; }
figure svg { display: block; width: 100%; max-width: 34rem; height: auto; margin: 0 auto; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figcaption { color: var(--muted); font-size: 0.88rem; margin-top: 0.4rem; }
code { font: 0.88rem/1.5 ui-monospace, monospace; }
pre { margin: 0.4rem 0; padding: 0.6rem 0.8rem; background: var(--panel); white-space: pre-wrap; }
@media (min-width: 40rem) { .wide th, .wide small { white-space: nowrap; } }
@media (max-width: 30rem) {
  body { padding: 0.7rem; }
  figure { padding: 0.5rem; }
  .facts th { white-space: normal; }
}
"""


def style() -> str:
    """Return the page's CSS; it names no other file."""
    light, dark = declarations(dark=False), declarations(dark=True)
    schemes = (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        # Paper is white, whatever the screen prefers.
        f"@media print {{ :root {{ {light} }} }}"
    )
    return schemes + _RULES
