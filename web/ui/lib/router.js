// Routes live in the fragment ("#/campaigns/k3v9qw2m?tab=space"), so that every view has an address and none needs the
// service to know it.

/** {segments: ["campaigns", "k3v9qw2m"], query: {tab: "space"}} */
export function parseRoute(hash) {
    const text = hash.replace(/^#?\/?/, "");
    const mark = text.indexOf("?");
    const path = mark < 0 ? text : text.slice(0, mark);
    const query = Object.fromEntries(new URLSearchParams(mark < 0 ? "" : text.slice(mark + 1)));
    return { segments: path.split("/").filter(Boolean).map(decode), query };
}

function decode(text) {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}

/** href(["campaigns", id], {tab: "space"}) */
export function href(segments, query) {
    const path = segments.map(encodeURIComponent).join("/");
    const used = Object.entries(query ?? {}).filter(
        ([, v]) => v !== null && v !== undefined && v !== "",
    );
    const search = new URLSearchParams(used).toString();
    return `#/${path}${search && `?${search}`}`;
}

export function go(segments, query) {
    location.hash = href(segments, query);
}

/** Change the query of the present page: a step of history where PUSH, otherwise the same entry. */
export function setQuery(changes, push = false) {
    const route = parseRoute(location.hash);
    const next = href(route.segments, { ...route.query, ...changes });
    if (next === location.hash) return;
    if (push) location.hash = next;
    else history.replaceState(null, "", next);
}

/** Take "#token=…" out of the address, so that it is neither shown, nor bookmarked, nor in history. */
export function takeToken() {
    const fragment = new URLSearchParams(location.hash.replace(/^#/, ""));
    const token = fragment.get("token");
    if (token === null) return null;
    history.replaceState(null, "", `#${fragment.get("to") ?? "/"}`);
    return token;
}
