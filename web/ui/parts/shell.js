// The frame around every page: bar with navigation, state of the event stream, theme, sign-out.

import { h, setText } from "../lib/dom.js";
import { hasToken } from "../lib/api.js";
import { href } from "../lib/router.js";
import { local } from "../lib/store.js";

const THEME = "partune-theme";
const SECTIONS = [
    ["campaigns", "Campaigns"],
    ["new", "New campaign"],
    ["plan", "Plan"],
    ["project", "Projection"],
    ["compare", "Compare"],
];

const dark = matchMedia("(prefers-color-scheme: dark)");
const forced = matchMedia("(forced-colors: active)");
const contrast = matchMedia("(prefers-contrast: more)");

const systemTheme = () => (dark.matches ? "dark" : "light");

// Where the system forces its colors, the theme is the one that goes with them.
function preferredTheme() {
    const kept = local.get(THEME);
    return !forced.matches && (kept === "light" || kept === "dark") ? kept : systemTheme();
}

function applyTheme() {
    document.documentElement.dataset.theme = preferredTheme();
    document.dispatchEvent(new Event("themechange"));
}

/** Change from light to dark or back, and remember it where it is not the system's. */
export function toggleTheme() {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    if (next === systemTheme()) local.remove(THEME);
    else local.set(THEME, next);
    applyTheme();
}

const STREAM = {
    connecting: ["live", "connecting …", "Opening the event stream"],
    live: ["live live-on", "live", "Receiving live updates"],
    lost: [
        "live live-lost",
        "reconnecting …",
        "No connection to the service; the page may be out of date",
    ],
    gone: ["live live-lost", "gone", "What is shown here no longer exists"],
};

/** The state of the event stream: {element, set(state)}, state null where the page has none. */
function streamLight() {
    const text = h("span", { role: "status" });
    const element = h(
        "span",
        { class: "live", hidden: true },
        h("i", { "aria-hidden": "true" }),
        text,
    );
    return {
        element,
        set(state) {
            element.hidden = state === null;
            if (state === null) return;
            const [className, words, help] = STREAM[state];
            element.className = className;
            element.title = help;
            setText(text, words);
        },
    };
}

/** Says so where this dashboard was built without the chart library. */
function chartsNotice() {
    const element = h("p", { class: "no-charts", role: "status" });
    document.addEventListener("nocharts", () =>
        setText(
            element,
            "Charts are shown as tables: this dashboard was built without the chart library.",
        ),
    );
    return element;
}

function skipLink(main) {
    const skip = (event) => {
        event.preventDefault();
        main.focus();
    };
    return h("a", { class: "skip", href: "#main", onclick: skip }, "Skip to content");
}

function topBar(links, tools) {
    return h(
        "header",
        { class: "bar" },
        h(
            "a",
            { class: "brand", href: href([]) },
            h("img", { src: "icon.svg", alt: "" }),
            "partune",
        ),
        h(
            "nav",
            { "aria-label": "Sections" },
            links.map(([, link]) => link),
        ),
        h("div", { class: "bar-tools" }, tools),
    );
}

/** Mark the link of the section that SEGMENTS are in. */
function markSection(links, segments) {
    for (const [key, link] of links) {
        if (key === (segments[0] ?? "campaigns")) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
}

/** Make the frame. Returns {main, navigate(segments), title(text), streamState(state), onKeys(fn), onSignOut(fn)}. */
export function shell() {
    applyTheme();
    for (const wish of [dark, forced, contrast]) wish.addEventListener("change", applyTheme);

    const button = (text, more) => h("button", { type: "button", class: "quiet", ...more }, text);
    const links = SECTIONS.map(([key, name]) => [key, h("a", { href: href([key]) }, name)]);
    const main = h("main", { id: "main", tabindex: "-1" });
    const stream = streamLight();
    const keys = button("Keys", {
        class: "quiet keys",
        title: "Keyboard shortcuts",
    });
    const theme = button("Theme", { onclick: toggleTheme, title: "Switch between light and dark" });
    const signOut = button("Sign out");
    document.body.prepend(
        skipLink(main),
        topBar(links, [stream.element, keys, theme, signOut]),
        chartsNotice(),
        main,
        h("p", { class: "toast", id: "announce", "aria-live": "polite" }),
    );

    let first = true;
    return {
        main,
        navigate(segments) {
            markSection(links, segments);
            signOut.hidden = !hasToken();
            if (!first) {
                scrollTo(0, 0);
                main.focus({ preventScroll: true });
            }
            first = false;
        },
        title(text) {
            document.title = text ? `${text} · partune` : "partune";
        },
        streamState: stream.set,
        onKeys: (fn) => keys.addEventListener("click", fn),
        onSignOut: (fn) => signOut.addEventListener("click", fn),
    };
}
