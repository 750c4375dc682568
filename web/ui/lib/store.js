// What the browser keeps for this page. A browser that is told to keep nothing refuses even to be asked: then it is
// kept until the page is left.

function store(name) {
    const kept = new Map();
    const real = () => {
        try {
            return globalThis[name] ?? null;
        } catch {
            return null;
        }
    };
    const attempt = (fn, otherwise) => {
        try {
            const s = real();
            return s ? fn(s) : otherwise();
        } catch {
            return otherwise();
        }
    };
    return {
        get: (key) =>
            attempt(
                (s) => s.getItem(key) ?? kept.get(key) ?? null,
                () => kept.get(key) ?? null,
            ),
        set(key, text) {
            attempt(
                (storage) => {
                    storage.setItem(key, text);
                    kept.delete(key);
                },
                () => kept.set(key, text),
            );
        },
        remove(key) {
            kept.delete(key);
            attempt(
                (s) => s.removeItem(key),
                () => {},
            );
        },
    };
}

/** For all tabs, until it is cleared. */
export const local = store("localStorage");
/** For this tab. */
export const session = store("sessionStorage");
