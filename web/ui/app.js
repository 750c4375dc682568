// Start: take the token from the address, draw the frame, show the page that the address names.

import { takeToken, parseRoute, href, go } from "./lib/router.js";
import { hasToken, setToken, whenRefused } from "./lib/api.js";
import { fill, h } from "./lib/dom.js";
import { turn } from "./lib/turn.js";
import { failure, loading } from "./parts/parts.js";
import { shell } from "./parts/shell.js";
import { help, shortcuts } from "./parts/keys.js";
import { signIn } from "./pages/signin.js";

// Each page is a module of its own, fetched when first wanted.
const PAGES = [
    [
        (s) => s.length === 0 || (s.length === 1 && s[0] === "campaigns"),
        () => import("./pages/campaigns.js"),
    ],
    [(s) => s.length === 2 && s[0] === "campaigns", () => import("./pages/campaign.js")],
    [
        (s) => s.length === 4 && s[0] === "campaigns" && s[2] === "trials",
        () => import("./pages/trial.js"),
    ],
    [
        (s) => s.length === 3 && s[0] === "campaigns" && s[2] === "export",
        () => import("./pages/export.js"),
    ],
    [(s) => s.length === 1 && s[0] === "new", () => import("./pages/new.js")],
    [(s) => s.length === 1 && s[0] === "plan", () => import("./pages/plan.js")],
    [(s) => s.length === 1 && s[0] === "project", () => import("./pages/project.js")],
    [(s) => s.length === 1 && s[0] === "compare", () => import("./pages/compare.js")],
    [() => true, () => import("./pages/missing.js")],
];

const frame = shell();
let shown = "";
let page = null;
let visit = null; // the turn of what is shown

function leave() {
    visit?.end();
    visit = null;
    page = null;
    frame.streamState(null);
    // A question about the page that is left is not answered.
    for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

function makeContext(route, root) {
    visit = turn();
    return {
        root,
        segments: route.segments,
        query: route.query,
        signal: visit.signal,
        onLeave: visit.onLeave,
        title: (text) => frame.title(text),
        streamState: (state, wait) => frame.streamState(state, wait),
    };
}

async function show() {
    const route = parseRoute(location.hash);
    const key = route.segments.join("/");
    if (page?.update && key === shown) {
        page.update(route.query);
        return;
    }
    leave();
    shown = key;
    const root = frame.main;
    frame.navigate(route.segments);
    const [, load] = PAGES.find(([matches]) => matches(route.segments));
    fill(root, loading("the page"));
    const ctx = makeContext(route, root);
    try {
        const module = await load();
        if (ctx.signal.aborted) return;
        const rendered = await module.render(ctx);
        if (!ctx.signal.aborted) page = rendered ?? null;
    } catch (error) {
        if (!ctx.signal.aborted) fail(ctx, error);
    }
}

/** In place of a page that could not be loaded. */
function fail(ctx, error) {
    const title = error.status === 404 ? "Not found" : "Cannot show this page";
    ctx.title(title);
    fill(
        ctx.root,
        h("h1", {}, title),
        failure(error, again),
        h("p", {}, h("a", { href: href([]) }, "All campaigns")),
    );
}

/** Show the same page afresh. */
function again() {
    shown = "";
    leave();
    show();
}

function askForToken() {
    leave();
    shown = "";
    signIn(makeContext(parseRoute(location.hash), frame.main), again);
}

function start() {
    const token = takeToken();
    if (token !== null) setToken(token);
    whenRefused(() => {
        setToken("");
        askForToken();
    });
    frame.onKeys(help);
    frame.onSignOut(() => {
        setToken("");
        askForToken();
    });
    window.addEventListener("hashchange", () => {
        const late = takeToken();
        if (late !== null) {
            setToken(late);
            shown = "";
        }
        if (hasToken() || late !== null) show();
        else again();
    });
    shortcuts({ go, href });
    show();
}

start();
