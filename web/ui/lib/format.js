// Numbers as people read them, each with its unit. Unknown values are a dash.

export const NONE = "–";

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function known(value) {
    return typeof value === "number" && Number.isFinite(value);
}

/** DIGITS significant digits, thousands separated, never in exponent form. */
export function significant(value, digits = 3) {
    if (!known(value)) return NONE;
    if (value === 0) return "0";
    const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
    if (whole >= digits) return plain.format(value);
    const places = Math.min(digits - whole, 9);
    return value.toLocaleString("en", {
        minimumFractionDigits: places,
        maximumFractionDigits: places,
    });
}

export function count(value) {
    return known(value) ? plain.format(value) : NONE;
}

/** A number, or a list of them: "256, 512". */
export function counts(value) {
    return Array.isArray(value) ? value.map(count).join(", ") : count(value);
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

function inLetters(value) {
    for (const [size, letter] of LARGE) {
        if (Math.abs(value) >= 10 * size) return [value / size, `${letter}`];
    }
    return [value, ""];
}

/** A rate without its unit, for table columns that name it: "41,012". */
export function rateNumber(value) {
    if (!known(value)) return NONE;
    const [y, letter] = inLetters(value);
    return `${significant(y, 4)}${letter && ` ${letter}`}`;
}

export function rate(value, unit = "tokens/s") {
    return known(value) ? `${rateNumber(value)} ${unit}` : NONE;
}

/**
 * HALF, the half-width of an interval, in fewer digits than the number VALUE that it belongs to: "± 280". One that is
 * wider than the number says only that the steps scatter.
 */
export function plusMinus(half, value = Infinity) {
    if (!known(half)) return NONE;
    return half > value ? "± over 100 %" : `± ${significant(half, 2)}`;
}

const NO_BOUND = 1e15;

/** "40,700 – 41,300". No rate is negative, and one beyond any machine is no bound. */
export function interval(lo, hi) {
    if (!known(lo) || typeof hi !== "number" || Number.isNaN(hi)) return NONE;
    const low = lo > 0 && hi / lo < NO_BOUND ? rateNumber(lo) : "0";
    return `${low} – ${hi < NO_BOUND ? rateNumber(hi) : "∞"}`;
}

/** "1.31 ×" */
export function ratio(value) {
    return known(value) ? `${value.toFixed(2)} ×` : NONE;
}

/** 0.413 as "41.3 %" */
export function percent(value, places = 1) {
    return known(value) ? `${(100 * value).toFixed(places)} %` : NONE;
}

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value) {
    if (!known(value)) return NONE;
    let scaled = value;
    let i = 0;
    while (Math.abs(scaled) >= 1024 && i < BINARY.length - 1) {
        scaled /= 1024;
        i += 1;
    }
    return `${i === 0 ? plain.format(scaled) : significant(scaled, 3)} ${BINARY[i]}`;
}

export function ms(value) {
    if (!known(value)) return NONE;
    if (Math.abs(value) >= 10000) return seconds(value / 1000);
    return `${significant(value, 3)} ms`;
}

/** "8.4 s", "2 min 30 s", "3 h 05 min", "2 d 4 h" */
export function seconds(value) {
    if (!known(value)) return NONE;
    if (Math.abs(value) < 100) return `${significant(value, value < 10 ? 2 : 3)} s`;
    const whole = Math.round(value);
    const min = Math.floor(whole / 60);
    if (whole < 3600) return `${min} min ${String(whole % 60).padStart(2, "0")} s`;
    const hours = Math.floor(min / 60);
    if (hours < 48) return `${hours} h ${String(min % 60).padStart(2, "0")} min`;
    return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Device-seconds as device-hours ("12.1 device-h"), or as device-minutes where those are few. */
export function deviceTime(value) {
    if (!known(value)) return NONE;
    if (value < 120) return `${significant(value, 3)} device-s`;
    if (value < 7200) return `${significant(value / 60, 3)} device-min`;
    return `${significant(value / 3600, 3)} device-h`;
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
