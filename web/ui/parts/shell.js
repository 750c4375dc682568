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

// Where the system forces its colours, the theme is the one that goes with them.
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
    connecting: ["live", "connecting …", "The stream of events is being opened"],
    live: ["live live-on", "live", "Changes appear as they happen"],
    lost: [
        "live live-lost",
        "reconnecting …",
        "The service does not answer; what you see may be old",
    ],
    gone: ["live live-lost", "gone", "The service no longer has what is shown here"],
};

export function shell() {
    applyTheme();
    for (const wish of [dark, forced, contrast]) wish.addEventListener("change", applyTheme);

    const links = SECTIONS.map(([key, name]) => [key, h("a", { href: href([key]) }, name)]);
    const stream = h("span", { class: "live", hidden: true });
    const streamText = h("span", { role: "status" });
    stream.append(h("i", { "aria-hidden": "true" }), streamText);
    const main = h("main", { id: "main", tabindex: "-1" });
    const keys = h(
        "button",
        { type: "button", class: "quiet keys", title: "Keyboard shortcuts, and their switch" },
        "Keys",
    );
    const signOut = h("button", { type: "button", class: "quiet" }, "Sign out");

    const noCharts = h("p", { class: "no-charts", role: "status" });
    document.addEventListener("nocharts", () =>
        setText(
            noCharts,
            "Tables are shown in place of charts: npm's registry could not be reached when this dashboard was built.",
        ),
    );

    document.body.prepend(
        h(
            "a",
            {
                class: "skip",
                href: "#main",
                onclick: (e) => {
                    e.preventDefault();
                    main.focus();
                },
            },
            "Skip to content",
        ),
        h(
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
                links.map(([, a]) => a),
            ),
            h(
                "div",
                { class: "bar-tools" },
                stream,
                keys,
                h(
                    "button",
                    {
                        type: "button",
                        class: "quiet",
                        onclick: toggleTheme,
                        title: "Change between light and dark",
                    },
                    "Theme",
                ),
                signOut,
            ),
        ),
        noCharts,
        main,
        h("p", { class: "toast", id: "announce", "aria-live": "polite" }),
    );

    let first = true;
    return {
        main,
        navigate(segments) {
            for (const [key, a] of links) {
                if (key === (segments[0] ?? "campaigns")) a.setAttribute("aria-current", "page");
                else a.removeAttribute("aria-current");
            }
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
        streamState(state) {
            stream.hidden = state === null;
            if (state === null) return;
            const [className, text, help] = STREAM[state];
            stream.className = className;
            stream.title = help;
            setText(streamText, text);
        },
        onKeys(fn) {
            keys.addEventListener("click", fn);
        },
        onSignOut(fn) {
            signOut.addEventListener("click", fn);
        },
    };
}
