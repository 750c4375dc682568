// Numbers as people read them, each with its unit. Unknown values are a dash.

export const NONE = "–";

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function known(x) {
    return typeof x === "number" && Number.isFinite(x);
}

/** DIGITS significant digits, thousands separated, never in exponent form. */
export function significant(x, digits = 3) {
    if (!known(x)) return NONE;
    if (x === 0) return "0";
    const whole = Math.floor(Math.log10(Math.abs(x))) + 1;
    if (whole >= digits) return plain.format(x);
    const places = Math.min(digits - whole, 9);
    return x.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
}

export function count(x) {
    return known(x) ? plain.format(x) : NONE;
}

/** "1 trial", "3 trials" */
export function counted(n, one, many = `${one}s`) {
    return `${count(n)} ${n === 1 ? one : many}`;
}

const LARGE = [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
];

function scaled(x) {
    for (const [size, letter] of LARGE) {
        if (Math.abs(x) >= 10 * size) return [x / size, `${letter}`];
    }
    return [x, ""];
}

/** A rate without its unit, for table columns that name it: "41,012". */
export function rateNumber(x) {
    if (!known(x)) return NONE;
    const [y, letter] = scaled(x);
    return `${significant(y, 4)}${letter && ` ${letter}`}`;
}

export function rate(x, unit = "tokens/s") {
    return known(x) ? `${rateNumber(x)} ${unit}` : NONE;
}

/**
 * The half-width of an interval, in fewer digits than the number VALUE that it belongs to: "± 280". One that is wider than
 * the number says only that the steps scatter.
 */
export function plusMinus(x, value = Infinity) {
    if (!known(x)) return NONE;
    return x > value ? "± over 100 %" : `± ${significant(x, 2)}`;
}

const NO_BOUND = 1e15;

/** "40,700 – 41,300". No rate is negative, and one beyond any machine is no bound. */
export function interval(lo, hi) {
    if (!known(lo) || typeof hi !== "number" || Number.isNaN(hi)) return NONE;
    const low = lo > 0 && hi / lo < NO_BOUND ? rateNumber(lo) : "0";
    return `${low} – ${hi < NO_BOUND ? rateNumber(hi) : "∞"}`;
}

/** "1.31 ×" */
export function ratio(x) {
    return known(x) ? `${x.toFixed(2)} ×` : NONE;
}

/** 0.413 as "41.3 %" */
export function percent(x, places = 1) {
    return known(x) ? `${(100 * x).toFixed(places)} %` : NONE;
}

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(x) {
    if (!known(x)) return NONE;
    let i = 0;
    while (Math.abs(x) >= 1024 && i < BINARY.length - 1) {
        x /= 1024;
        i += 1;
    }
    return `${i === 0 ? plain.format(x) : significant(x, 3)} ${BINARY[i]}`;
}

export function ms(x) {
    if (!known(x)) return NONE;
    if (Math.abs(x) >= 10000) return seconds(x / 1000);
    return `${significant(x, 3)} ms`;
}

/** "8.4 s", "2 min 30 s", "3 h 05 min", "2 d 4 h" */
export function seconds(x) {
    if (!known(x)) return NONE;
    if (Math.abs(x) < 100) return `${significant(x, x < 10 ? 2 : 3)} s`;
    const whole = Math.round(x);
    const min = Math.floor(whole / 60);
    if (whole < 3600) return `${min} min ${String(whole % 60).padStart(2, "0")} s`;
    const hours = Math.floor(min / 60);
    if (hours < 48) return `${hours} h ${String(min % 60).padStart(2, "0")} min`;
    return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Device-seconds as device-hours ("12.1 device-h"), or as device-minutes where those are few. */
export function deviceTime(x) {
    if (!known(x)) return NONE;
    if (x < 120) return `${significant(x, 3)} device-s`;
    if (x < 7200) return `${significant(x / 60, 3)} device-min`;
    return `${significant(x / 3600, 3)} device-h`;
}

/** A short local date and time; the exact UTC one belongs into a title. */
export function time(text) {
    const t = new Date(text);
    if (!text || Number.isNaN(t.getTime())) return NONE;
    const day = t.toLocaleDateString("en-CA");
    const clock = t.toLocaleTimeString("en-GB");
    return day === new Date().toLocaleDateString("en-CA") ? clock : `${day} ${clock.slice(0, 5)}`;
}

/** A foreign text inside another: its direction marks end with it (Unicode's isolates), on a canvas, too. */
export function isolated(text) {
    return `\u2068${text}\u2069`;
}

/** JSON for reading: short lists stay on one line. */
export function prettyJson(value) {
    return JSON.stringify(value, null, 2).replace(
        /\[\s+([^[\]{}]{1,200}?)\s+\]/g,
        (_, inner) => `[${inner.replace(/\s*\n\s*/g, " ")}]`,
    );
}

/** Seconds between two times of the wire; unknown ends mean now. */
export function between(from, to) {
    if (!from) return null;
    return ((to ? Date.parse(to) : Date.now()) - Date.parse(from)) / 1000;
}
