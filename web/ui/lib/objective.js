// What a campaign's objective compares layouts by: tokens/s, or tokens/s per device.

const known = (value) => value !== null && value !== undefined;

export const perDevice = (campaign) => campaign?.objective === "tokens_per_s_per_device";

export const unitOf = (campaign) => (perDevice(campaign) ? "tokens/s per device" : "tokens/s");

const devicesOf = (layout) => (layout?.world ?? 1) * (layout?.threads ?? 1);

/** What SPEED, tokens/s of LAYOUT, is worth by CAMPAIGN's objective: more is better. Null stays null. */
export function worth(campaign, speed, layout) {
    if (!known(speed)) return null;
    return perDevice(campaign) ? speed / devicesOf(layout) : speed;
}

/** By what factor SPEED, tokens/s of LAYOUT, is better than CAMPAIGN's baseline; null: unknown. */
export function gainOf(campaign, speed, layout) {
    const { baseline } = campaign;
    const base = worth(campaign, baseline?.tokens_per_s, baseline?.layout);
    return base && speed ? worth(campaign, speed, layout) / base : null;
}

const RATES = ["tokens_per_s", "tokens_per_s_se", "lo", "hi"];

/** RESULT, a trial or a standing, with all its rates as the objective has them. */
export function scaled(campaign, result) {
    if (!result || !perDevice(campaign)) return result;
    const each = (part) =>
        part && {
            ...part,
            ...Object.fromEntries(
                RATES.filter((key) => key in part).map((key) => [
                    key,
                    worth(campaign, part[key], result.layout),
                ]),
            ),
        };
    return { ...each(result), predicted: each(result.predicted), inferred: each(result.inferred) };
}
