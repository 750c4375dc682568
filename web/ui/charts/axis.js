// Axes: which values one spans, its ticks, where a value lies, and both as parts of a Vega spec.
//
// An axis is {title, type, names, from, to, zero, exact, whole, ticks, format, grid, limit}:
//   type          "linear" (where it is absent), "log" or "category"
//   names         of a category axis: its labels; values are their indices, the first at the left or at the top
//   upward        the first of a vertical category axis is at the bottom
//   from, to      ends that are given; the data's where they are absent
//   zero          include zero
//   exact         end at the data instead of a round number
//   whole         ticks at whole numbers only
//   base          of a log axis: 2 has ticks at powers of two
//   ticks         the values of the ticks
//   format(value) the text of a tick
//   grid          draw lines across
//   limit         pixels of the longest label; every: no label is left out where they are close; mono: in a fixed width

// The factors of a power of ten, and from where on each is nearer, as a ratio, than the one below.
const STEPS = [
    [10, Math.sqrt(50)],
    [5, Math.sqrt(10)],
    [2, Math.SQRT2],
    [1, 0],
];

/** The distance between ticks of a SPAN with about COUNT of them: 1, 2 or 5 times a power of ten. */
export function tickStep(span, count, whole) {
    const rough = span / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(rough));
    const [factor] = STEPS.find(([, least]) => rough / power >= least);
    const step = power * factor;
    return whole ? Math.max(1, Math.round(step)) : step;
}

/** The multiples of STEP within DOMAIN, without the noise of adding fractions. */
function multiples([low, high], step) {
    const first = Math.ceil(low / step - 1e-9);
    const last = Math.floor(high / step + 1e-9);
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) =>
        Number(((first + i) * step).toPrecision(12)),
    );
}

/** Round numbers within DOMAIN of a log axis: powers of BASE, of ten with their doubles and halves where few fit. */
function logTicks([low, high], base) {
    const within = (value) => value >= low * 0.999 && value <= high * 1.001;
    const first = Math.floor(Math.log(low) / Math.log(base));
    const last = Math.ceil(Math.log(high) / Math.log(base));
    const powers = Array.from({ length: last - first + 1 }, (_, i) => base ** (first + i));
    const decades = powers.filter(within);
    if (base === 2 || decades.length > 3) return decades;
    return powers.flatMap((power) => [power, 2 * power, 5 * power]).filter(within);
}

function ends(values) {
    let low = Infinity;
    let high = -Infinity;
    for (const value of values) {
        if (!Number.isFinite(value)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
    }
    return low <= high ? [low, high] : [0, 1];
}

function linearDomain(axis, values, count) {
    let [low, high] = ends(values);
    if (axis.zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    low = axis.from ?? low;
    high = axis.to ?? high;
    if (!(high > low)) {
        const room = Math.abs(low) * 0.05 || 1;
        if (axis.to === undefined || axis.from !== undefined) high = low + room;
        if (axis.from === undefined) low -= axis.zero ? 0 : room;
    }
    if (axis.exact) return [low, high];
    const step = tickStep(high - low, count, axis.whole);
    return [
        axis.from ?? step * Math.floor(low / step + 1e-9),
        axis.to ?? step * Math.ceil(high / step - 1e-9),
    ];
}

function logDomain(axis, values) {
    const [low, high] = ends(values.filter((value) => value > 0));
    const base = axis.base ?? 10;
    const power = (value, round) => base ** round(Math.log(value) / Math.log(base));
    if (base === 2) {
        const from = power(low, Math.floor);
        return [from, Math.max(power(high, Math.ceil), 2 * from)];
    }
    const room = (high / low) ** 0.06 || 1;
    return high > low ? [low / room, high * room] : [low / 2, high * 2];
}

function category({ names, upward }, length, vertical) {
    const band = length / Math.max(1, names.length);
    const down = vertical && upward;
    const start = (i) => (down ? names.length - 1 - i : i) * band;
    return {
        type: "band",
        domain: names.map((_, i) => i),
        range: down ? [length, 0] : [0, length],
        band,
        ticks: names.map((_, i) => i),
        texts: names.map(String),
        start,
        pixel: (i) => start(i) + band / 2,
    };
}

/**
 * AXIS over VALUES on LENGTH pixels: {type, domain, full, range, ticks, texts, pixel(value), value(pixel)}. ZOOM are
 * the ends that the reader asked for, or null; full are those without it.
 */
export function resolved(axis, values, { length, vertical = false, zoom = null }) {
    if (axis.type === "category") return category(axis, length, vertical);
    const count = Math.max(2, Math.round(length / (vertical ? 48 : 90)));
    const log = axis.type === "log";
    const full = log ? logDomain(axis, values) : linearDomain(axis, values, count);
    const domain = zoom ?? full;
    const step = tickStep(domain[1] - domain[0], count, axis.whole);
    const plain = log ? logTicks(domain, axis.base ?? 10) : multiples(domain, step);
    const ticks = axis.ticks ?? plain;
    const bend = log ? Math.log : Number;
    const [low, high] = domain.map((end) => bend(end));
    const share = (value) => (bend(value) - low) / (high - low);
    const back = (part) => (log ? Math.exp(low + part * (high - low)) : low + part * (high - low));
    return {
        type: log ? "log" : "linear",
        base: axis.base,
        domain,
        full,
        range: vertical ? [length, 0] : [0, length],
        ticks,
        texts: ticks.map((tick) => axis.format?.(tick) ?? tick.toLocaleString("en")),
        pixel: (value) => (vertical ? 1 - share(value) : share(value)) * length,
        value: (pixel) => back(vertical ? 1 - pixel / length : pixel / length),
    };
}

/** The Vega scale NAME of what resolved() gives. */
export function vegaScale(name, { type, domain, range, base }) {
    const more = {
        // Without a rim rounding may put the first category out of the range, and Vega leaves out its label.
        band: { paddingOuter: 1e-6 },
        linear: { zero: false, nice: false },
        log: { base: base ?? 10, nice: false },
    };
    return { name, type, domain, range, ...more[type] };
}

/** The Vega axis of AXIS, RESOLVED; its texts are the signal NAME + "Texts". */
export function vegaAxis(name, axis, { type, ticks }) {
    const vertical = name === "y";
    return {
        scale: name,
        orient: vertical ? "left" : "bottom",
        title: axis.title,
        values: ticks,
        grid: axis.grid ?? (vertical && type !== "band"),
        ticks: type !== "band" || !vertical,
        labelOverlap: axis.every ? false : "parity",
        labelSeparation: 4,
        labelLimit: axis.limit ?? 0,
        ...(axis.mono && { labelFont: "monospace", labelFontSize: 11 }),
        encode: { labels: { update: { text: { signal: `${name}Texts[datum.value]` } } } },
    };
}

/** The signal that holds the texts of an axis by the values of its ticks. */
export function textsSignal(name, { ticks, texts }) {
    return {
        name: `${name}Texts`,
        value: Object.fromEntries(ticks.map((tick, i) => [tick, texts[i]])),
    };
}
