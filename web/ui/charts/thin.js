// Fewer points than pixels can show, without losing an extreme.

/**
 * At most about LIMIT of POINTS, which are in order of x: the range is cut into equal runs, and of each run the lowest
 * and the highest point by Y are kept (and the first and the last of all, and those for which KEEP says so). A curve
 * through what is left covers the same pixels as the whole, since every peak is still there.
 */
export function thin(points, limit, valueOf, keep = () => false) {
    if (points.length <= limit) return points;
    const runs = Math.max(1, Math.floor((limit - 2) / 2));
    const chosen = new Set([0, points.length - 1]);
    for (let r = 0; r < runs; r++) {
        const from = Math.floor((r * points.length) / runs);
        const to = Math.floor(((r + 1) * points.length) / runs);
        let low = from;
        let high = from;
        for (let i = from; i < to; i++) {
            if (valueOf(points[i]) < valueOf(points[low])) low = i;
            if (valueOf(points[i]) > valueOf(points[high])) high = i;
            if (keep(points[i])) chosen.add(i);
        }
        chosen.add(low).add(high);
    }
    return [...chosen].sort((a, b) => a - b).map((i) => points[i]);
}
