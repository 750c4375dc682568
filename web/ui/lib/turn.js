// What a view holds, its requests, timers and charts, is let go when another takes its place.

/**
 * The time of one view: {signal, onLeave(fn), end()}. end() aborts the signal and calls what was given to onLeave;
 * given later than that, it is called at once.
 */
export function turn() {
    const controller = new AbortController();
    const { signal } = controller;
    const fns = [];
    return {
        signal,
        onLeave(fn) {
            if (signal.aborted) fn();
            else fns.push(fn);
        },
        end() {
            controller.abort();
            fns.splice(0).forEach((fn) => fn());
        },
    };
}

/** One answer after another in a page: each call ends the time of the one before and gives the context of the next. */
export function turns(ctx) {
    let now = null;
    ctx.onLeave(() => now?.end());
    return () => {
        now?.end();
        now = turn();
        return { ...ctx, signal: now.signal, onLeave: now.onLeave };
    };
}
