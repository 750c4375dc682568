// What a campaign's objective compares layouts by: tokens/s, tokens/s per device, tokens/J, or tokens for a price.

const known = (value) => value !== null && value !== undefined;

export const perDevice = (campaign) => campaign?.objective === "tokens_per_s_per_device";
export const perJoule = (campaign) => campaign?.objective === "tokens_per_joule";
export const perCost = (campaign) => campaign?.objective === "tokens_per_cost";

/** What a ratio is of, where it is not of tokens/s; "" where it is. */
export function ratioNote(campaign) {
    if (perDevice(campaign)) return "per device";
    if (perCost(campaign)) return "for a price";
    return perJoule(campaign) ? "tokens/J" : "";
}

export function unitOf(campaign) {
    if (perDevice(campaign)) return "tokens/s per device";
    if (perCost(campaign)) return "tokens per unit of price";
    return perJoule(campaign) ? "tokens/J" : "tokens/s";
}

const devicesOf = (layout) => (layout?.world ?? 1) * (layout?.threads ?? 1);

/** Price of a device-hour where LAYOUT runs; undefined: unknown. */
function priceOf({ cluster }, layout) {
    const one = Array.isArray(cluster) ? cluster.find(({ name }) => name === layout?.cluster) : cluster;
    return one?.price_per_device_hour;
}

/** By what rates of LAYOUT, tokens/s, are multiplied for the objective, if not by its energy. */
function unitFactor(campaign, layout) {
    const each = 1 / devicesOf(layout);
    if (perDevice(campaign)) return each;
    return perCost(campaign) ? (3600 * each) / priceOf(campaign, layout) : 1;
}

/**
 * What SPEED, tokens/s of LAYOUT, is worth by CAMPAIGN's objective: more is better; EFFICIENCY is its tokens/J. Null
 * stays null.
 */
export function worth(campaign, speed, layout, efficiency) {
    if (perJoule(campaign)) return efficiency ?? null;
    if (!known(speed)) return null;
    return speed * unitFactor(campaign, layout);
}

/** By what factor that is better than CAMPAIGN's baseline; null: unknown. */
export function gainOf(campaign, speed, layout, efficiency) {
    const { baseline } = campaign;
    const base = worth(campaign, baseline?.tokens_per_s, baseline?.layout, baseline?.tokens_per_joule);
    const value = worth(campaign, speed, layout, efficiency);
    return base && value ? value / base : null;
}

const RATES = ["tokens_per_s", "tokens_per_s_se", "lo", "hi"];

/** PART with all its rates times UNIT. */
const times = (part, unit) =>
    part && {
        ...part,
        ...Object.fromEntries(
            RATES.filter((key) => key in part).map((key) => [key, known(part[key]) ? part[key] * unit : null]),
        ),
    };

/** RESULT in tokens/J: of a run that measured them. What is only expected has no joules. */
function inJoules(result) {
    const { tokens_per_s: speed, tokens_per_joule: efficiency } = result;
    const rates = times(result, speed && efficiency ? efficiency / speed : null);
    if (known(result.tokens_per_joule_lo)) {
        rates.lo = result.tokens_per_joule_lo;
        rates.hi = result.tokens_per_joule_hi;
    }
    return { ...rates, tokens_per_s: efficiency ?? null, predicted: null, inferred: null };
}

/** RESULT, a trial or a standing, with all its rates as the objective has them. */
export function scaled(campaign, result) {
    if (result && perJoule(campaign)) return inJoules(result);
    if (!result || !(perDevice(campaign) || perCost(campaign))) return result;
    const each = (part) => times(part, unitFactor(campaign, result.layout));
    return { ...each(result), predicted: each(result.predicted), inferred: each(result.inferred) };
}
