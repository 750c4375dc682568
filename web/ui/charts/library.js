// The chart library: fetched when the first chart is due. A dashboard that was built without it
// (web/ui/build-vendor.sh) has a module in its place that exports no View: then panels show tables.

let library = null;
let without = false;

/** The library, or null where this build has none. One that failed is asked for again: the service may come back. */
export async function loadLibrary() {
    library ??= import("../vendor/vega.min.js").catch((error) => {
        library = null;
        throw error;
    });
    const module = await library;
    if (module.View) return module;
    goWithout();
    return null;
}

/** From now on every panel shows its table; the frame says why, once. */
function goWithout() {
    if (without) return;
    without = true;
    document.dispatchEvent(new Event("nocharts"));
}

/** Is it known that this build has no chart library? */
export const lacksLibrary = () => without;
