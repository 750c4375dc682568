"""A campaign for a notebook: a line of text, a chart of its trials, the winner's layout."""

from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM = 560, 180, 60, 24


def number(value):
    return "–" if value is None else f"{value:,.0f}"


def chart(trials, unit):
    """Throughput of trials in UNIT as SVG: dots, and the best so far as a line; "" without any."""
    points = [(t["n"], t["tokens_per_s"], t["text"]) for t in trials if t["tokens_per_s"]]
    if not points:
        return ""
    last, top = max(t["n"] for t in trials), max(rate for _, rate, _ in points) * 1.05

    def x(n):
        return LEFT + (WIDTH - LEFT - 10) * (n - 1) / max(1, last - 1)

    def y(rate):
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 10) * rate / top

    best, line, dots = points[0][1], f"M{x(points[0][0]):.1f},{y(points[0][1]):.1f}", []
    for n, rate, text in points:
        best = max(best, rate)
        line += f"H{x(n):.1f}V{y(best):.1f}"
        dots.append(
            f'<circle cx="{x(n):.1f}" cy="{y(rate):.1f}" r="3">'
            f"<title>trial {n}: {number(rate)} {unit}, {escape(text)}</title></circle>"
        )
    axis = (
        f'<path d="M{LEFT},5V{HEIGHT - BOTTOM}H{WIDTH - 10}" fill="none" stroke="currentColor"/>'
        f'<text x="{LEFT - 5}" y="{y(best) + 4:.1f}" text-anchor="end">{number(best)}</text>'
        f'<text x="{LEFT - 5}" y="{HEIGHT - BOTTOM}" text-anchor="end">0</text>'
        f'<text x="{x(1):.1f}" y="{HEIGHT - 8}" text-anchor="middle">1</text>'
        f'<text x="{x(last):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{last}</text>'
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">trial</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'role="img" font-size="11" fill="currentColor"><title>{unit} of each trial, and the '
        f'best so far</title>{axis}<path d="{line}" fill="none" '
        f'stroke="currentColor" stroke-opacity="0.5"/>{"".join(dots)}</svg>'
    )


def campaign_html(campaign, trials):
    best = campaign["best"]
    kind = "simulated tokens/s" if campaign["simulated"] else "tokens/s"
    mark = "simulated, " if campaign["simulated"] else ""
    text = f"{mark}{campaign['state']}, {campaign['progress']['trials']} trials"
    if best:
        text += f"; best: {best['text']}, {number(best['tokens_per_s'])} {kind}"
        if best["ratio"]:
            text += f", {best['ratio']:.2f} x baseline"
    return (
        f"<div><b>{escape(campaign['name'])}</b> ({escape(campaign['id'])}): {escape(text)}"
        f"<br>{chart(trials, kind)}</div>"
    )
